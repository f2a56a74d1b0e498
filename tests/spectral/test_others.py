"""`ExactSpectral`, `PowerSpectral`, `NystromSpectral` and `LandmarkSpectral` compute the eigenvectors of their oracles."""

import tracemalloc
import warnings

import numpy as np
import pytest
from scipy import sparse
from scipy.linalg import eigh
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score

from shoal import ExactSpectral, LandmarkSpectral, MiniBatchSpectral, NystromSpectral, PowerSpectral
from shoal.data.rows import Rows
from shoal.execution.threads import on_threads
from shoal.fit.input import check_rows
from shoal.fit.random_streams import Stream, generator
from shoal.spectral import affinity, lanczos, tiles
from shoal.spectral.affinity_factory import AffinityParameters, make_kernel_affinity
from shoal.spectral.neighbors import approximate_neighbors
from shoal.spectral.nystrom import nystrom
from tests import naive
from tests.strategies import blobs

pytestmark = pytest.mark.filterwarnings("ignore:Only .* leading eigenvalues are positive")

LAYOUTS = pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
X, Y = blobs(300, 3, 4, spread=2.0)
SIGMA = 6.0
L = naive.laplacian(naive.affinity(X, SIGMA))


class TestExact:
    @LAYOUTS
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    @pytest.mark.parametrize("store", [True, False])
    @pytest.mark.parametrize("k", [1, 4, pytest.param(100, marks=pytest.mark.slow), 300])
    def test_equals_the_oracle(self, layout, dtype, store, k):
        model = ExactSpectral(k, sigma=SIGMA, store=store, random_state=0).fit(layout(X.astype(dtype)))
        U, values = naive.leading(L, k)
        np.testing.assert_allclose(model.eigenvalues_, values, atol=1e-5)
        W = model.embedding_.astype(float)
        np.testing.assert_allclose(W.T @ W, np.eye(k), atol=1e-4)
        if k == 4:
            assert naive.sines(U, W).max() < 1e-3
        assert model.history_[0]["objective"] == pytest.approx(-values.sum() / 2, abs=1e-3)

    def test_embedding_of_new_rows(self):
        """Up to the diagonal, the extension of an eigenvector to the rows of the fit is the eigenvector."""
        model = ExactSpectral(3, sigma=SIGMA, random_state=0).fit(X)
        moved = model.transform(X + 1e-7)
        np.testing.assert_allclose(moved[:, :2], model.embedding_[:, :2], atol=0.02)
        assert (model.predict(X + 1e-7) == model.labels_).mean() > 0.98

    def test_precomputed_new_rows(self):
        A = naive.affinity(X, SIGMA)
        model = ExactSpectral(4, affinity="precomputed", random_state=0).fit(A)
        np.testing.assert_allclose(model.transform(A), model.embedding_, atol=1e-8)
        np.testing.assert_array_equal(model.predict(sparse.csr_array(A)), model.labels_)

    def test_neighbor_graph(self):
        model = ExactSpectral(4, affinity="knn", n_neighbors=12, random_state=0).fit(X)
        who = naive.neighbors(X, 12)
        A = np.zeros((300, 300))
        A[np.repeat(np.arange(300), 12), who.ravel()] = 0.5
        U, values = naive.leading(naive.laplacian(A + A.T), 4)
        np.testing.assert_allclose(model.eigenvalues_, values, atol=1e-8)
        assert naive.sines(U, model.embedding_).max() < 1e-5
        assert (model.predict(X + 1e-6) == model.labels_).mean() > 0.95

    @pytest.mark.filterwarnings("ignore")  # missed neighbors may disconnect the graph, and pynndescent issues warnings
    def test_neighbors_by_pynndescent(self):
        """Nearly all neighbors are the exact ones. The package compiles for a minute."""
        pytest.importorskip("pynndescent")
        with on_threads(Rows.of(check_rows(None, X, reset=False))) as rows:
            who = approximate_neighbors(rows, 12, 0)
        exact = naive.neighbors(X, 12)
        assert who.shape == (300, 12)
        assert not (who == np.arange(300)[:, None]).any()
        assert np.mean([len(set(a) & set(b)) / 12 for a, b in zip(who, exact, strict=True)]) > 0.9
        assert np.isfinite(ExactSpectral(4, affinity="knn", neighbors="pynndescent", random_state=0).fit(X).embedding_).all()

    def test_rings(self):
        angles = np.linspace(0, 2 * np.pi, 300, endpoint=False)
        rings = np.concatenate([r * np.column_stack([np.cos(angles), np.sin(angles)]) for r in (1, 3, 6)])
        model = ExactSpectral(3, affinity="self-tuning", random_state=0).fit(
            rings + np.random.default_rng(0).normal(0, 0.05, rings.shape)
        )
        assert adjusted_rand_score(np.repeat([0, 1, 2], 300), model.labels_) == 1
        assert adjusted_rand_score(np.repeat([0, 1, 2], 300), model.predict(rings)) == 1


class TestPower:
    @LAYOUTS
    @pytest.mark.parametrize("powers", [1, 3])
    def test_equals_the_oracle(self, layout, powers):
        start = np.linalg.qr(generator(0, Stream.INITIAL_SUBSPACE).standard_normal((300, 4)))[0]
        U, c = start, 0.0
        for _ in range(powers):
            c = max(c, -np.linalg.eigvalsh(U.T @ L @ U)[0])
            U, values, _ = np.linalg.svd(L @ U + c * U, full_matrices=False)
        model = PowerSpectral(4, sigma=SIGMA, max_iter=powers, tol=0, random_state=0).fit(layout(X))
        assert naive.sines(U, model.embedding_).max() < 1e-6
        flops = 2 * 300**2 * 4 - 300 * 4
        np.testing.assert_allclose(model.eigenvalues_, values - c, atol=1e-6)
        assert [r["flops"] for r in model.history_] == [flops + 2 * 300 * 16 + 2 * 64] + [flops] * (powers - 1)
        assert [r["columns"] for r in model.history_] == [300] * powers

    def test_converges(self):
        model = PowerSpectral(4, sigma=SIGMA, max_iter=500, tol=1e-6, random_state=0).fit(X)
        U, values = naive.leading(L, 4)
        assert model.stop_reason_ == "converged"
        assert naive.sines(U, model.embedding_).max() < 1e-3
        np.testing.assert_allclose(model.eigenvalues_, values, atol=1e-5)


class TestNegativeEigenvalues:
    def test_power(self):
        """Two clusters of two sides each, with affinities across the sides: eigenvalues 1, 0.68 and, twice, -0.76."""
        side, sides = np.array([[0.05, 1], [1, 0.05]]), np.full((2, 2), 0.1)
        A = np.kron(np.block([[side, sides], [sides, side]]), np.ones((20, 20)))
        model = PowerSpectral(2, affinity="precomputed", max_iter=200, tol=1e-6, random_state=0).fit(A)
        U, values = naive.leading(naive.laplacian(A), 2)
        np.testing.assert_allclose(model.eigenvalues_, values, atol=1e-5)
        assert naive.sines(U, model.embedding_).max() < 1e-4
        np.testing.assert_allclose(model.transform(A), model.embedding_, atol=1e-4)
        assert adjusted_rand_score(np.repeat([0, 1], 40), model.labels_) == 1

    @pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
    @pytest.mark.parametrize("cls", [ExactSpectral, PowerSpectral])
    def test_are_not_extended(self, cls):
        """Each row has an affinity to one other row only: the eigenvalues are 1 and -1."""
        A = np.kron(np.eye(3), [[0, 1], [1, 0]]) + 1e-3 * (1 - np.eye(6))
        with pytest.warns(ConvergenceWarning, match=r"Only 3 of the n_clusters=6 leading.*fewer clusters"):
            model = cls(6, affinity="precomputed", random_state=0, **({} if cls is ExactSpectral else {"tol": 0})).fit(A)
        moved = model.transform(A)
        np.testing.assert_allclose(moved[:, :3], model.embedding_[:, :3], atol=1e-6)
        assert not moved[:, 3:].any()


class TestHardForArpack:
    @pytest.mark.parametrize("options", [{"sigma": 0.1}, {"affinity": "self-tuning", "n_neighbors": 1}], ids=["rbf", "self"])
    @pytest.mark.filterwarnings("ignore::UserWarning")
    def test_close_eigenvalues(self, options):
        rows = np.random.default_rng(0).normal(size=(600, 2))
        model = ExactSpectral(4, random_state=0, n_init=1, **options).fit(rows)
        assert 0.999 < model.eigenvalues_.min() <= model.eigenvalues_.max() < 1 + 1e-6
        assert model.history_[0]["columns"] < 600 * 30_000  # the full matrix is used instead

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_equal_eigenvalues_are_all_found(self, dtype):
        """ARPACK alone misses one of five components for every other seed, and the clusters are wrong."""
        y = np.arange(600) % 5
        for seed in range(6):
            rows = (np.random.default_rng(seed).normal(size=(600, 3)) + 40 * y[:, None]).astype(dtype)
            model = ExactSpectral(5, sigma=2.0, random_state=seed, n_init=3).fit(rows)
            np.testing.assert_allclose(model.eigenvalues_, 1, atol=1e-5)
            W = model.embedding_.astype(float)
            np.testing.assert_allclose(W.T @ W, np.eye(5), atol=1e-4)
            assert adjusted_rand_score(y, model.labels_) == 1

    @pytest.mark.filterwarnings("ignore::UserWarning")
    def test_lapack_fails_to_compute_a_subset(self, monkeypatch):
        def fail_for_subsets(A, subset_by_index=None, **options):
            if subset_by_index is not None:
                raise np.linalg.LinAlgError("Internal Error.")
            return eigh(A, **options)

        rows = np.random.default_rng(0).normal(size=(60, 2))
        one = ExactSpectral(3, random_state=0).fit(rows)
        monkeypatch.setattr("shoal.spectral.lanczos.eigh", fail_for_subsets)
        other = ExactSpectral(3, random_state=0).fit(rows)
        np.testing.assert_allclose(other.eigenvalues_, one.eigenvalues_)
        np.testing.assert_array_equal(other.labels_, one.labels_)

    @pytest.mark.filterwarnings("ignore::UserWarning")
    def test_no_convergence(self, monkeypatch):
        monkeypatch.setattr("shoal.spectral.lanczos.MAX_FALLBACK_ROWS", 0)
        monkeypatch.setitem(lanczos.RESTARTS, False, 1)
        with pytest.raises(ValueError, match=r"n_clusters=4 leading eigenvalues are too close.*PowerSpectral"):
            ExactSpectral(4, sigma=0.1, random_state=0).fit(np.random.default_rng(0).normal(size=(600, 2)))


def test_a_graph_stays_sparse(monkeypatch):
    monkeypatch.setattr("shoal.spectral.graph.GraphAffinity.dense", lambda self: pytest.fail("a dense matrix"))
    assert ExactSpectral(4, affinity="knn", n_neighbors=12, random_state=0).fit(X).n_iter_ == 1


def _reached(start):
    """Return all objects that an object refers to."""
    seen, todo = {}, [start]
    while todo:
        one = todo.pop()
        if id(one) not in seen and not isinstance(one, type):
            seen[id(one)] = one
            todo += list(getattr(one, "__dict__", {}).values()) + (list(one) if isinstance(one, tuple) else [])
    return seen.values()


def test_a_fitted_basis_does_not_keep_all_rows():
    model = NystromSpectral(4, n_samples=50, sigma=SIGMA, random_state=0).fit(X)
    assert not any(np.shares_memory(held, X) for held in _reached(model) if isinstance(held, np.ndarray))


class TestNystrom:
    @LAYOUTS
    @pytest.mark.parametrize("m", [20, 80, 300])
    def test_equals_the_oracle(self, layout, m):
        model = NystromSpectral(4, sigma=SIGMA, n_samples=m, random_state=0).fit(layout(X))
        ids = np.sort(generator(0, Stream.NYSTROM_SAMPLE).choice(300, m, replace=False))
        U, values = naive.nystrom(naive.affinity(X, SIGMA) + np.eye(300), ids, 4)
        np.testing.assert_allclose(model.eigenvalues_, values, atol=1e-5)
        W = model.embedding_
        np.testing.assert_allclose(W.T @ W, np.eye(4), atol=1e-7)
        assert naive.sines(np.linalg.qr(U)[0], W).max() < 1e-3
        n, k = 300, 4
        flops = 6 * n * k + 8 * k**3 - 3 * k**2 + 4 * n * k**2 - 3 * k + 2 * n * k * m + n * m + 2 * n * m**2 + m**2 + m**3 - n
        assert model.history_[0]["flops"] == flops

    @LAYOUTS
    @pytest.mark.parametrize("m", [80, 300])
    @pytest.mark.parametrize("n_neighbors", [1, pytest.param(2, marks=pytest.mark.slow), 7])
    def test_self_tuning_equals_the_oracle(self, layout, m, n_neighbors):
        """Local scales may give negative eigenvalues, which are left out."""
        far = np.sqrt(np.sort(naive.distances(X, X), axis=1)[:, n_neighbors])
        K = naive.affinity(X, np.sqrt(np.outer(far, far))) + np.eye(300)
        ids = np.sort(generator(0, Stream.NYSTROM_SAMPLE).choice(300, m, replace=False))
        values, V = np.linalg.eigh(K[np.ix_(ids, ids)])
        C = K[:, ids] @ V[:, values > 1e-10 * values[-1]]
        L = naive.laplacian(C / values[values > 1e-10 * values[-1]] @ C.T)
        model = NystromSpectral(4, affinity="self-tuning", n_neighbors=n_neighbors, n_samples=m, random_state=0).fit(layout(X))
        U, expected = naive.leading(L, 4)
        np.testing.assert_allclose(model.eigenvalues_, expected, atol=1e-5)
        assert naive.sines(U, model.embedding_).max() < 1e-3

    def test_embedding_of_new_rows(self):
        model = NystromSpectral(4, sigma=SIGMA, n_samples=50, random_state=0).fit(X)
        np.testing.assert_allclose(model.transform(X + 1e-9), model.embedding_, atol=1e-5)

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_of_wide_sparse_rows(self, dtype, monkeypatch):
        """Sparse rows stay sparse, with the same result."""
        rows = sparse.csr_array(X.astype(dtype))
        dense = NystromSpectral(4, n_samples=100, random_state=0).fit(rows)
        monkeypatch.setattr(affinity, "MAX_COLUMN_VALUES", 64)
        monkeypatch.setattr(tiles, "MAX_BLOCK_ROWS", 16)
        wide = NystromSpectral(4, n_samples=100, random_state=0).fit(rows)
        np.testing.assert_allclose(wide.eigenvalues_, dense.eigenvalues_, atol=1e-5)
        assert naive.sines(dense.embedding_.astype(float), wide.embedding_.astype(float)).max() < 1e-2
        assert adjusted_rand_score(dense.labels_, wide.labels_) == 1  # rounding may number clusters differently

    def test_wide_sparse_rows_are_not_made_dense(self):
        rows = sparse.random_array((400, 100_000), density=1e-4, rng=0, format="csr")
        with on_threads(Rows.of(check_rows(None, rows, reset=False)), 1) as opened:
            tracemalloc.start()
            found, _ = make_kernel_affinity(opened, AffinityParameters("rbf"), 3, 0)
            nystrom(opened, found.inverse_scales, found.subset(np.arange(0, 400, 2)), 3)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        assert peak < 50e6  # 200 rows would be 160 MB

    def test_too_few_rows(self):
        with pytest.raises(ValueError, match="n_samples=3 rows have no n_clusters=4"):
            NystromSpectral(4, n_samples=3).fit(X)


class TestLandmarks:
    @LAYOUTS
    @pytest.mark.parametrize(("nearest", "sigma"), [(1, 3.0), (3, 3.0), (20, 3.0), (3, None), (20, None)])
    def test_equals_the_oracle(self, layout, nearest, sigma):
        model = LandmarkSpectral(4, n_landmarks=20, n_nearest=nearest, sigma=sigma, random_state=0).fit(layout(X))
        C = model.extension_.map.landmarks.source.X
        U, values = naive.landmark_spectral(X, C, nearest, sigma, 4)
        np.testing.assert_allclose(model.eigenvalues_, values, atol=1e-8)
        np.testing.assert_allclose(model.embedding_.T @ model.embedding_, np.eye(4), atol=1e-8)
        if nearest > 1:
            assert naive.sines(U, model.embedding_).max() < 1e-5

    def test_embedding_of_new_rows(self):
        model = LandmarkSpectral(4, n_landmarks=20, random_state=0).fit(X)
        np.testing.assert_allclose(model.transform(X + 1e-9), model.embedding_, atol=1e-6)

    def test_finds_blobs(self):
        rows, y = blobs(600, 4, 5)
        assert adjusted_rand_score(y, LandmarkSpectral(5, n_landmarks=50, random_state=0).fit_predict(rows)) == 1

    def test_outliers_are_no_clusters(self):
        """With a common sigma, an outlier has the weight of one landmark only."""
        rows = np.random.default_rng(0).standard_t(1.5, (2000, 3))
        alone = LandmarkSpectral(4, n_landmarks=200, sigma=1.0, random_state=0).fit(rows)
        assert np.bincount(alone.labels_).min() <= 4
        together = LandmarkSpectral(4, n_landmarks=200, random_state=0).fit(rows)
        assert np.bincount(together.labels_).min() > 4
        assert together.eigenvalues_[3] < alone.eigenvalues_[3] - 1e-3

    def test_too_few_landmarks(self):
        with pytest.raises(ValueError, match="n_landmarks=3 landmarks have no n_clusters=4"):
            LandmarkSpectral(4, n_landmarks=3).fit(X)


@pytest.mark.parametrize("cls", [ExactSpectral, MiniBatchSpectral])
def test_equal_seeds_give_equal_bits_for_separated_groups(cls):
    """ARPACK continues with random vectors here, since the graph has more connected components than clusters."""
    rng = np.random.default_rng(0)
    groups = 4 * rng.normal(size=(12, 6))[rng.integers(12, size=3000)] + rng.normal(size=(3000, 6))
    model = cls(4, affinity="knn", n_init=2, random_state=3)
    with warnings.catch_warnings(action="ignore"):  # that the graph has several connected components
        first, second = (model.fit(groups[:400] + 1e6).embedding_.copy() for _ in range(2))
    np.testing.assert_array_equal(first, second)
