"""`MiniBatchSpectral`: its steps equal those of the oracle, and it converges to the exact eigenvectors."""

from contextlib import contextmanager

import numpy as np
import pytest
from scipy import sparse
from sklearn.metrics import adjusted_rand_score

from shoal import ExactSpectral, MiniBatchSpectral, PowerSpectral
from shoal.data.rows import Rows
from shoal.data.sources import ArraySource
from shoal.execution.threads import on_threads
from shoal.fit.random_streams import Stream, generator
from shoal.spectral import manifold
from shoal.spectral.affinity import KernelAffinity
from shoal.spectral.laplacian import Laplacian
from shoal.spectral.minibatch import batch_columns, estimate_quotient
from tests import naive
from tests.strategies import blobs, cloud

pytestmark = pytest.mark.filterwarnings("ignore:Only .* leading eigenvalues are positive")

SEED = 3


def fit(X, k=3, **options):
    options = {"init": "random", "tol": 0, "max_iter": 5, "random_state": SEED, "sigma": 2.0, **options}
    return MiniBatchSpectral(k, **options).fit(X)


@contextmanager
def laplacian_of(X):
    with on_threads(Rows.of(ArraySource(X)), 1) as rows:
        affinity = KernelAffinity(rows, np.full(len(X), 0.5))
        yield Laplacian(affinity, affinity.degrees())


def unit_vectors(n, size, t):
    """Return a random vector for each column of step t, as Algorithm 1 of the paper has them."""
    return np.sqrt(n) * np.eye(n)[batch_columns(n, size, t, SEED)]


class TestEqualsTheOracle:
    @pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
    @pytest.mark.parametrize("size", [20, 30, 1000])
    @pytest.mark.parametrize("steps", [1, 2, 10])
    def test_step_by_step(self, layout, size, steps):
        X = cloud(80, 3)
        L = naive.laplacian(naive.affinity(X, 2.0))
        start = manifold.random_point(80, 3, generator(SEED, Stream.INITIAL_SUBSPACE))
        W = naive.harmonic_spectral(L, start, [unit_vectors(80, min(size, 80), t) for t in range(steps)])
        model = fit(layout(X), batch_size=size, max_iter=steps)
        assert naive.sines(W, model.embedding_).max() < 1e-5
        np.testing.assert_allclose(model.eigenvalues_, np.linalg.eigvalsh(W.T @ L @ W)[::-1], atol=1e-5)
        assert (model.n_iter_, model.stop_reason_) == (steps, "max_iter")

    def test_history(self):
        X, k, n, m = cloud(80, 3), 3, 80, 20
        L = naive.laplacian(naive.affinity(X, 2.0))
        start = manifold.random_point(n, k, generator(SEED, Stream.INITIAL_SUBSPACE))
        model = fit(X, batch_size=m)
        first, last = model.history_[0], model.history_[-1]
        G = sum(np.outer(L @ r, r @ start) for r in unit_vectors(n, m, 0)) / m
        assert first["objective"] == pytest.approx(-np.trace(start.T @ G) / 2)
        assert first["columns"] == m
        assert first["flops"] == 2 * n * k * m + 6 * n * k**2 - k**2
        assert last["step"] == 5
        path = [start, *(fit(X, batch_size=m, max_iter=t).embedding_ for t in (1, 2))]
        assert model.history_[1]["change"] == pytest.approx(np.sqrt(np.mean(naive.sines(path[1], path[2]) ** 2)))


@pytest.mark.parametrize("size", [10, 20, 25])
def test_each_column_is_used_at_most_once_per_epoch(size):
    n, steps = 60, 60 // size
    ids = [batch_columns(n, size, t, SEED) for t in range(2 * steps)]
    assert all(len(columns) == size for columns in ids)
    for epoch in (ids[:steps], ids[steps:]):
        assert len(set(np.concatenate(epoch))) == steps * size
    assert not np.array_equal(ids[0], ids[steps])


class TestConverges:
    @pytest.mark.parametrize("init", ["random", "sample"])
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_to_the_exact_eigenvectors(self, init, dtype, monkeypatch):
        monkeypatch.setattr("shoal.spectral.minibatch.MIN_SAMPLE_ROWS", 60)
        X, _ = blobs(300, 3, 4, spread=2.0, dtype=dtype)
        U, values = naive.leading(naive.laplacian(naive.affinity(X, 6.0)), 4)
        angles = []
        for count in (4, 40, 1000):
            model = fit(X, 4, sigma=6.0, init=init, batch_size=60, max_iter=count)
            angles.append(naive.sines(U, model.embedding_.astype(float)).max())
        assert angles[-1] < 0.05
        assert angles[-1] < angles[-2] < angles[0] or angles[-1] < 1e-3  # the precision of float32
        np.testing.assert_allclose(model.eigenvalues_, values, atol=0.02)

    def test_at_once_where_the_sample_is_all_rows(self):
        X, _ = blobs(300, 3, 4, spread=2.0)
        model = MiniBatchSpectral(4, sigma=6.0, random_state=0).fit(X)
        U, values = naive.leading(naive.laplacian(naive.affinity(X, 6.0)), 4)
        assert naive.sines(U, model.embedding_).max() < 0.01
        np.testing.assert_allclose(model.eigenvalues_, values, atol=1e-3)
        assert model.stop_reason_ == "converged" or model.n_iter_ == 1

    def test_until_the_subspace_hardly_changes(self):
        X, _ = blobs(300, 3, 4, spread=2.0)
        model = fit(X, 4, sigma=6.0, batch_size=300, max_iter=3000, tol=0.01)
        assert model.stop_reason_ == "converged"
        assert model.history_[-1]["change"] <= 0.01 < model.history_[-2]["change"]


class TestOptions:
    @pytest.mark.parametrize("kind", ["rbf", "self-tuning", "knn"])
    @pytest.mark.filterwarnings("ignore:The affinity graph")
    def test_every_affinity_finds_blobs(self, kind):
        X, y = blobs(300, 4, 5)
        model = MiniBatchSpectral(5, affinity=kind, random_state=0).fit(X)
        assert adjusted_rand_score(y, model.labels_) == 1

    def test_stored_affinities_give_the_same_result(self):
        X = cloud(200, 3)
        np.testing.assert_allclose(fit(X, store=True).embedding_, fit(X).embedding_, atol=1e-8)

    @pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
    def test_precomputed_affinities_give_the_same_result(self, layout):
        X = cloud(200, 3)
        given = fit(layout(naive.affinity(X, 2.0)), affinity="precomputed", sigma=None, batch_size=30)
        np.testing.assert_allclose(given.embedding_, fit(X, batch_size=30).embedding_, atol=1e-8)

    def test_sampled_degrees(self):
        X, y = blobs(600, 4, 5)
        model = MiniBatchSpectral(5, degree_samples=200, random_state=0).fit(X)
        assert 0 < model.degree_error_ < 0.5
        assert adjusted_rand_score(y, model.labels_) == 1
        assert MiniBatchSpectral(5, random_state=0).fit(X).degree_error_ == 0

    def test_result_does_not_depend_on_the_number_of_threads(self, monkeypatch):
        monkeypatch.setattr("shoal.spectral.tiles.MAX_BLOCK_ROWS", 64)
        X = cloud(500, 5, dtype=np.float32)
        one, *others = (fit(X, n_threads=t, init="sample", batch_size=50) for t in (1, 2, 4))
        for other in others:
            np.testing.assert_array_equal(one.embedding_, other.embedding_)
            np.testing.assert_array_equal(one.labels_, other.labels_)

    def test_time_budget(self):
        model = fit(cloud(300, 3), max_iter=10**6, time_budget=0.5)
        assert model.stop_reason_ == "time_budget"

    def test_callback_stops_the_fit(self):
        seen = []
        model = fit(cloud(100, 3), callback=lambda record: seen.append(record["objective"]) or len(seen) == 2)
        assert (model.stop_reason_, model.n_iter_, len(seen)) == ("callback", 2, 2)

    def test_normalize(self):
        X, y = blobs(300, 4, 5)
        model = MiniBatchSpectral(5, normalize=True, random_state=0).fit(X)
        np.testing.assert_allclose(np.linalg.norm(model.kmeans_.cluster_centers_, axis=1), 1, atol=0.2)
        assert adjusted_rand_score(y, model.labels_) == 1


class TestEigenvalues:
    @pytest.mark.parametrize(
        "options", [{}, {"store": True}, {"affinity": "knn", "sigma": None, "init": "random"}], ids=["few", "stored", "graph"]
    )
    def test_are_those_of_the_subspace(self, options, monkeypatch):
        monkeypatch.setattr("shoal.spectral.minibatch.MIN_SAMPLE_ROWS", 1000 if not options else 50)
        X, _ = blobs(300, 3, 4, spread=4.0)
        options = {"init": "sample", "sigma": 6.0, **options}
        model = fit(X, 4, batch_size=20, max_iter=2, **options)
        A = naive.affinity(X, 6.0)
        if "affinity" in options:
            A = np.zeros((300, 300))
            A[np.repeat(np.arange(300), 10), naive.neighbors(X, 10).ravel()] = 0.5
            A += A.T
        W = model.embedding_
        np.testing.assert_allclose(W.T @ naive.laplacian(A) @ W, np.diag(model.eigenvalues_), atol=1e-6)

    @pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
    def test_of_equal_affinities(self):
        model = MiniBatchSpectral(4, affinity="precomputed", random_state=0).fit(np.ones((500, 500)))
        np.testing.assert_allclose(model.eigenvalues_, [1, 0, 0, 0], atol=1e-6)


class TestMessages:
    @pytest.mark.parametrize("cls", [MiniBatchSpectral, PowerSpectral])
    def test_callback_gets_the_records_of_the_history(self, cls):
        records = []
        model = cls(3, random_state=0, max_iter=4, tol=0, callback=records.append).fit(cloud(100, 2))
        assert records == model.history_

    @pytest.mark.filterwarnings("ignore:The affinity graph")
    def test_approximate_neighbors_of_sparse_rows(self):
        with pytest.warns(UserWarning, match=r"neighbors='pynndescent' needs dense rows.*computed exactly"):
            fit(sparse.csr_array(cloud(50, 2)), affinity="knn", sigma=None, neighbors="pynndescent")


def test_a_memory_map_is_read_in_blocks(tmp_path):
    X = cloud(3000, 4, dtype=np.float32)
    np.save(tmp_path / "rows.npy", X)
    there = fit(np.load(tmp_path / "rows.npy", mmap_mode="r"), init="sample", batch_size=200)
    np.testing.assert_array_equal(there.embedding_, fit(X, init="sample", batch_size=200).embedding_)


def test_no_matrix_of_all_pairs():
    import tracemalloc

    X = cloud(12_000, 4, dtype=np.float32)
    fit(X[:2000], max_iter=1)
    tracemalloc.start()
    fit(X, max_iter=2, batch_size=200, degree_samples=200, init="sample")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < len(X) ** 2 * 4 / 10


def test_clusters_are_close_to_the_exact_ones():
    X, _ = blobs(1500, 5, 6, spread=1.5)
    one, other = (cls(6, random_state=0).fit(X) for cls in (MiniBatchSpectral, ExactSpectral))
    assert adjusted_rand_score(one.labels_, other.labels_) > 0.95


class TestQuotients:
    """W' L W is estimated from some rows of L."""

    X = cloud(600, 3)
    dense = naive.laplacian(naive.affinity(X, 2.0))

    def test_of_eigenvectors_are_exact(self):
        U, values = naive.leading(self.dense, 4)
        with laplacian_of(self.X) as L:
            np.testing.assert_allclose(estimate_quotient(L, U, 30, np.random.default_rng(0)), np.diag(values), atol=1e-9)

    def test_of_other_vectors_are_near(self):
        W = manifold.retract(self.dense @ manifold.random_point(600, 4, np.random.default_rng(1), np.dtype(np.float64)))
        with laplacian_of(self.X) as L:
            found = np.mean([estimate_quotient(L, W, 300, np.random.default_rng(s)) for s in range(50)], axis=0)
        np.testing.assert_allclose(found, W.T @ self.dense @ W, atol=0.02)

    def test_eigenvectors_of_few_rows_are_not_missed(self):
        X = cloud(4000, 3)
        X[:3] = 1000 + X[:3] / 10
        W = np.zeros((4000, 1))
        W[:3] = 3**-0.5
        with laplacian_of(X) as L:
            assert estimate_quotient(L, W, 20, np.random.default_rng(0))[0, 0] == pytest.approx(1, abs=0.05)


def test_eigenvalues_of_many_rows_are_near_those_of_l():
    y = np.arange(3000) % 4
    X = np.random.default_rng(0).normal(size=(3000, 3)) + 40 * y[:, None]
    model = MiniBatchSpectral(4, sigma=2.0, random_state=0).fit(X)
    np.testing.assert_allclose(model.eigenvalues_, 1, atol=5e-3)
