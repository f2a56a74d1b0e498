"""Difficult and invalid rows, graphs and parameters give a clear error or warning, and never NaN in an embedding."""

import itertools
import pickle
import tracemalloc
from functools import partial

import numpy as np
import pytest
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from sklearn.datasets import make_blobs, make_moons
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score

from shoal import ExactSpectral, LandmarkSpectral, MiniBatchSpectral, NystromSpectral, PowerSpectral
from shoal.data.rows import Rows
from shoal.data.statistics import measure
from shoal.execution.threads import on_threads
from shoal.fit.input import check_rows
from shoal.spectral import graph
from shoal.spectral.neighbors import nearest_rows
from tests import naive
from tests.strategies import blobs, cloud

pytestmark = pytest.mark.filterwarnings("ignore:Only .* leading eigenvalues are positive")

GROUPS = np.arange(600) % 5
APART = np.random.default_rng(0).normal(size=(600, 3)) + 40 * GROUPS[:, None]
CLASSES = [ExactSpectral, LandmarkSpectral, MiniBatchSpectral, NystromSpectral, PowerSpectral]
OPERATORS = [ExactSpectral, MiniBatchSpectral, PowerSpectral]
every = pytest.mark.parametrize("cls", CLASSES)
operators = pytest.mark.parametrize("cls", OPERATORS)
layouts = pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
quiet = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
X, Y = blobs(200, 4, 4)
TWO = np.kron(np.eye(2), np.ones((10, 10)))


def assert_valid(model, rows):
    assert np.isfinite(model.embedding_).all()
    assert np.isfinite(model.eigenvalues_).all()
    assert np.isfinite([record["objective"] for record in model.history_]).all()
    np.testing.assert_array_equal(model.predict(rows), model.labels_)
    assert np.isfinite(model.transform(rows + 1e-3 if isinstance(rows, np.ndarray) else rows)).all()


class TestScales:
    @every
    @layouts
    @pytest.mark.parametrize("exponent", [-200, -20, 0, 20, 200])
    def test_float64(self, cls, layout, exponent):
        rows = layout(X * 10.0**exponent)
        model = cls(4, random_state=0).fit(rows)
        assert adjusted_rand_score(Y, model.labels_) == 1
        np.testing.assert_array_equal(model.predict(rows), model.labels_)

    @every
    @pytest.mark.parametrize("exponent", [-30, 0, 18])
    def test_float32(self, cls, exponent):
        rows = (X * 10.0**exponent).astype(np.float32)
        assert adjusted_rand_score(Y, cls(4, random_state=0).fit_predict(rows)) == 1

    @every
    @pytest.mark.parametrize(("dtype", "offset"), [(np.float32, 1e4), (np.float64, 1e8)])
    def test_far_from_the_origin(self, cls, dtype, offset):
        rows = (X + offset).astype(dtype)
        model = cls(4, random_state=0).fit(rows)
        assert adjusted_rand_score(Y, model.labels_) == 1
        new = sparse.csr_array(rows + rows.dtype.type(0.01))
        assert adjusted_rand_score(Y, model.predict(new)) == 1


class TestEqualRows:
    @every
    @quiet
    @pytest.mark.parametrize("rows", [np.ones((30, 3)), np.zeros((30, 3)), np.repeat(np.eye(3), 10, axis=0)], ids="102")
    def test_few_distinct_rows(self, cls, rows):
        model = cls(4, random_state=0).fit(rows)
        assert_valid(model, rows)

    @every
    def test_have_equal_embeddings(self, cls):
        rows = np.repeat(X[:60], 3, axis=0)
        model = cls(4, random_state=0).fit(rows)
        assert_valid(model, rows)
        np.testing.assert_array_equal(model.embedding_[::3], model.embedding_[1::3])
        assert adjusted_rand_score(np.repeat(Y[:60], 3), model.labels_) == 1


class TestSigma:
    @pytest.mark.parametrize("cls", [*OPERATORS])
    @pytest.mark.parametrize("sigma", [1e-3, 1e-30, 1e-300])
    def test_so_small_that_all_affinities_underflow(self, cls, sigma):
        with pytest.raises(ValueError, match=r"No row has .* any other row: sigma=(1e-\d+|0.001) is too small.*raise it"):
            cls(4, sigma=sigma).fit(X)

    @pytest.mark.parametrize("n_samples", [50, 200])
    @pytest.mark.parametrize("sigma", [1e-2, 1e-200])
    def test_too_small_for_the_basis(self, n_samples, sigma):
        with pytest.raises(ValueError, match=r"No row has .* any of the n_samples=\d+ rows of the basis: raise sigma"):
            NystromSpectral(4, sigma=sigma, n_samples=n_samples).fit(X)

    @pytest.mark.parametrize("n_samples", [150, 202])
    def test_isolated_rows_of_a_basis(self, n_samples):
        rows = np.vstack([X, [[1e3] * 4, [-1e3] * 4]])
        with pytest.warns(UserWarning, match=r"2 of 202 rows have no affinity .*\(the first is row 200\).*embedded at zero"):
            model = NystromSpectral(4, sigma=9.0, n_samples=n_samples, random_state=0).fit(rows)
        assert not model.embedding_[200:].any()
        assert adjusted_rand_score(Y, model.labels_[:200]) == 1

    @quiet
    @pytest.mark.parametrize("sigma", [1e-200, 1e-30, 1e30, 1e200, 1e308])
    def test_of_landmarks(self, sigma):
        assert_valid(LandmarkSpectral(4, sigma=sigma, random_state=0).fit(X), X)

    @every
    @quiet
    @pytest.mark.parametrize("sigma", [1e30, 1e200, 1e308])
    def test_so_large_that_all_affinities_are_equal(self, cls, sigma):
        model = cls(4, sigma=sigma, random_state=0).fit(X)
        assert_valid(model, X)
        assert model.sigma_ == sigma

    @operators
    def test_isolated_rows(self, cls):
        rows = np.vstack([X, [[1e3] * 4, [-1e3] * 4]])
        with pytest.warns(UserWarning, match=r"2 of 202 rows have no affinity .*\(the first is row 200\).*embedded at zero"):
            model = cls(4, sigma=1.0, random_state=0).fit(rows)
        assert np.isfinite(model.embedding_).all()
        assert not model.embedding_[200:].any()
        np.testing.assert_array_equal(model.predict(rows[:200]), model.labels_[:200])

    @operators
    def test_isolated_new_rows(self, cls):
        model = cls(4, sigma=1.0, random_state=0).fit(X)
        with pytest.warns(UserWarning, match=r"1 rows of X have no affinity to any row of the fit \(the first is row 1\)"):
            assert not model.transform([X[0], [1e3] * 4])[1].any()


class TestGraphs:
    @operators
    @layouts
    def test_with_two_components(self, cls, layout):
        with pytest.warns(UserWarning, match="has 2 connected components"):
            model = cls(2, affinity="precomputed", random_state=0).fit(layout(TWO))
        assert adjusted_rand_score(np.repeat([0, 1], 10), model.labels_) == 1
        np.testing.assert_allclose(model.eigenvalues_, 1, atol=1e-5)

    @operators
    @layouts
    def test_with_more_components_than_clusters(self, cls, layout):
        with pytest.warns(UserWarning, match="has 5 connected components"):
            model = cls(2, affinity="precomputed", random_state=0).fit(layout(np.kron(np.eye(5), np.ones((4, 4)))))
        assert np.isfinite(model.embedding_).all()

    @operators
    @layouts
    def test_isolated_rows(self, cls, layout):
        A = np.pad(naive.affinity(X[:30], 9.0), (0, 2))
        with pytest.warns(UserWarning, match=r"2 of 32 rows have no affinity to any other row \(the first is row 30\)"):
            model = cls(3, affinity="precomputed", random_state=0).fit(layout(A))
        assert np.isfinite(model.embedding_).all()
        assert np.abs(model.embedding_[30:]).max() < 1e-6

    @operators
    @layouts
    def test_rows_connected_with_themselves_only(self, cls, layout):
        A = np.eye(32)
        A[:30, :30] += naive.affinity(X[:30], 9.0)
        with pytest.warns(UserWarning, match=r"has 3 connected components, 2 of them of one row \(the first is row 30\)"):
            model = cls(3, affinity="precomputed", random_state=0).fit(layout(A))
        assert np.isfinite(model.embedding_).all()

    def test_a_stored_zero_is_no_edge(self):
        A = sparse.csr_array(TWO + np.eye(20)[::-1])
        A.data = TWO[A.nonzero()]
        with pytest.warns(UserWarning, match="has 2 connected components"):
            ExactSpectral(2, affinity="precomputed", random_state=0).fit(A)
        assert A.nnz == 220

    @layouts
    @pytest.mark.parametrize("order", ["C", "F"])
    def test_component_labels(self, layout, order, monkeypatch):
        monkeypatch.setattr(graph, "SEARCH_ENTRIES", 100)
        rng = np.random.default_rng(0)
        A = np.triu(rng.random((60, 60)) < 0.02).astype(float)
        A = np.asarray(A + A.T, order=order)
        count, labels = connected_components(A)
        found = graph.component_labels(layout(A))
        assert found.max() == count - 1
        assert adjusted_rand_score(labels, found) == 1

    def test_a_memory_map_stays_on_disk(self, tmp_path):
        A = np.memmap(tmp_path / "A", np.float32, "w+", shape=(2000, 2000))
        A[:] = 1
        with on_threads(Rows.of(check_rows(None, A, reset=False)), 1) as rows:
            tracemalloc.start()
            graph.make_graph(A, rows)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        assert peak < A.nbytes / 2

    @operators
    @layouts
    @pytest.mark.parametrize("scale", [1e-300, 1e-35, 1e35, 1.7e308])
    def test_of_any_scale(self, cls, layout, scale):
        A = naive.affinity(X, 9.0)
        one, other = (cls(4, affinity="precomputed", random_state=0).fit(layout(M)) for M in (A, A * scale))
        np.testing.assert_allclose(other.eigenvalues_, one.eigenvalues_, atol=1e-6)
        np.testing.assert_array_equal(other.labels_, one.labels_)
        np.testing.assert_allclose(other.transform(layout(A * scale)), one.transform(layout(A)), atol=1e-6)
        lopsided = A * scale
        lopsided[3, 7] *= 0.5
        with pytest.raises(ValueError, match="affinities must be symmetric"):
            cls(4, affinity="precomputed").fit(layout(lopsided))

    @operators
    @layouts
    def test_without_edges(self, cls, layout):
        with pytest.raises(ValueError, match="No row has an affinity to any other row"):
            cls(2, affinity="precomputed").fit(layout(np.zeros((6, 6))))

    @operators
    @layouts
    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ((3, 7, 5.0), r"X\[3, 7\] is 5.0 and X\[7, 3\] is 1.0: affinities must be symmetric"),
            ((3, 7, -2.0), "X holds -2.0 at row 3, column 7: affinities must not be negative"),
            ((3, 7, np.nan), "X contains NaN at row 3, column 7"),
            ((3, 7, np.inf), "X contains infinity at row 3, column 7"),
        ],
        ids=["asymmetric", "negative", "NaN", "infinite"],
    )
    def test_invalid_affinities(self, cls, layout, change, message):
        A = np.ones((20, 20))
        A[change[:2]] = change[2]
        with pytest.raises(ValueError, match=message):
            cls(2, affinity="precomputed").fit(layout(A))

    @operators
    def test_that_are_not_square(self, cls):
        with pytest.raises(ValueError, match=r"needs a square X.*\(20, 19\)"):
            cls(2, affinity="precomputed").fit(np.ones((20, 19)))

    @operators
    def test_asymmetry_by_rounding_is_accepted(self, cls):
        A = naive.affinity(X, 9.0).astype(np.float32)
        A[3, 7] *= np.float32(1 + 1e-6)
        assert adjusted_rand_score(Y, cls(4, affinity="precomputed", random_state=0).fit_predict(A)) == 1

    @operators
    @pytest.mark.parametrize("dtype", [bool, np.int8, np.int64])
    def test_of_integers(self, cls, dtype):
        A = np.ones((20, 20), dtype)
        A[:10, 10:] = A[10:, :10] = 0
        A[0, 19] = A[19, 0] = 1
        assert adjusted_rand_score(np.repeat([0, 1], 10), cls(2, affinity="precomputed", random_state=0).fit_predict(A)) == 1

    @operators
    def test_new_rows_are_checked(self, cls):
        A = naive.affinity(X, 9.0)
        model = cls(4, affinity="precomputed", random_state=0).fit(A)
        with pytest.raises(ValueError, match="affinities must not be negative"):
            model.predict(-A[:3])


class TestSizes:
    @every
    def test_more_clusters_than_rows(self, cls):
        with pytest.raises(ValueError, match="n_samples=5 should be >= n_clusters=6"):
            cls(6).fit(X[:5])

    @every
    @quiet
    @pytest.mark.parametrize("n", [2, 3, 10])
    def test_as_many_clusters_as_rows(self, cls, n):
        rows = cloud(n, 2)
        assert_valid(cls(n, random_state=0).fit(rows), rows)

    @every
    @pytest.mark.filterwarnings("ignore::UserWarning")
    def test_one_row(self, cls):
        model = cls(1, random_state=0).fit([[1.0, 2.0]])
        assert np.isfinite(model.embedding_).all()
        assert model.predict([[1.0, 2.0]]) == [0]

    @operators
    @pytest.mark.filterwarnings("ignore:The affinity graph", "ignore:The subspace still changed")
    @pytest.mark.parametrize("n_neighbors", [1, 1000])
    def test_extreme_numbers_of_neighbors(self, cls, n_neighbors):
        assert_valid(cls(4, affinity="knn", n_neighbors=n_neighbors, random_state=0).fit(X), X)


PARAMETERS = {
    "sigma": [0, -1.0, "wide", np.nan],
    "affinity": ["linear", None],
    "n_neighbors": [0, 1.5],
    "neighbors": ["hnsw"],
    "degree_samples": [0, "some"],
    "store": ["yes"],
    "normalize": [3],
    "n_init": [0],
    "batch_size": [0, 1.5],
    "init": ["k-means++"],
    "max_iter": [0],
    "tol": [-1],
    "time_budget": [0],
    "n_samples": [0],
    "n_landmarks": [0],
    "n_nearest": [0],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in PARAMETERS.items() for value in values])
def test_invalid_parameters(name, value):
    takers = [cls for cls in CLASSES if name in cls().get_params()]
    assert takers
    for cls in takers:
        with pytest.raises(ValueError, match=name):
            cls(**{"n_clusters": 3, name: value}).fit(X)


@every
def test_new_rows_out_of_range(cls):
    model = cls(4, random_state=0).fit(X.astype(np.float32))
    with pytest.raises(ValueError, match="NaN at row 1"):
        model.predict([[0.0] * 4, [np.nan] * 4])
    with pytest.raises(ValueError, match="Row 1 of X lies so far from the rows of the fit"):
        model.predict([[0.0] * 4, [1e200] * 4])


@every
def test_fit_with_one_layout_predict_with_another(cls):
    containers = [X, np.asfortranarray(X), sparse.csr_array(X), sparse.csc_array(X), X.tolist()]
    for rows in containers[:3]:
        model = cls(4, random_state=0).fit(rows)
        for other in containers:
            np.testing.assert_array_equal(model.predict(other), model.labels_)


@every
@pytest.mark.filterwarnings("ignore:The affinity graph")
@pytest.mark.parametrize("kind", ["rbf", "self-tuning", "knn"])
def test_pickled_models_embed_new_rows_alike(cls, kind):
    if kind != "rbf" and (cls is LandmarkSpectral or (cls is NystromSpectral and kind == "knn")):
        pytest.skip(f"{cls.__name__} has no {kind}")
    options = {} if cls is LandmarkSpectral else {"affinity": kind}
    model = cls(4, random_state=0, **options).fit(X)
    new = X + 0.01
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).transform(new), model.transform(new))
    assert adjusted_rand_score(Y, model.predict(new)) == 1


@every
@pytest.mark.filterwarnings("ignore:The affinity graph", "ignore:.* have no affinity", "ignore:X has more than")
@pytest.mark.parametrize("kind", ["rbf", "self-tuning", "knn"])
def test_new_rows_do_not_depend_on_each_other(cls, kind):
    if kind != "rbf" and (cls is LandmarkSpectral or (cls is NystromSpectral and kind == "knn")):
        pytest.skip(f"{cls.__name__} has no {kind}")
    options = {} if cls is LandmarkSpectral else {"affinity": kind}
    rows = np.vstack([np.repeat(X[:20], 10, axis=0), X])
    model = cls(4, random_state=0, **options).fit(rows)
    new = X[:20] + 0.01
    together = model.transform(np.vstack([new, 100 * X]))[:20]
    np.testing.assert_allclose(model.transform(new), together, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(model.transform(new[:1]), together[:1], rtol=1e-3, atol=1e-5)


def test_too_large_to_store(monkeypatch):
    monkeypatch.setattr("os.sysconf", lambda name: 100)
    with pytest.raises(MemoryError, match=r"store=True asks for 200 x 200 affinities.*use store=False"):
        ExactSpectral(4).fit(X)


class TestGroupsWithoutAffinity:
    @pytest.mark.parametrize("cls", OPERATORS)
    def test_as_many_groups_as_clusters_are_the_clusters(self, cls):
        model = cls(5, sigma=2.0, random_state=0).fit(APART)
        assert adjusted_rand_score(GROUPS, model.labels_) == 1
        np.testing.assert_allclose(model.eigenvalues_, 1, atol=1e-3)

    @pytest.mark.parametrize("k", [2, 4])
    def test_more_groups_than_clusters(self, k):
        with pytest.warns(UserWarning, match=rf"more than n_clusters={k} groups.*sigma=2 is too small.*more clusters"):
            ExactSpectral(k, sigma=2.0, random_state=0).fit(APART)

    def test_no_warning_about_a_chain(self):
        """The second eigenvalue of a chain is 0.9997. Warnings are errors here."""
        assert ExactSpectral(2, sigma=0.1, random_state=0).fit(np.linspace(0, 10, 1000)[:, None]).eigenvalues_[1] > 0.999

    def test_no_warning_about_estimates_above_one(self):
        rows, _ = make_moons(5000, noise=0.05, random_state=0)
        with pytest.warns(UserWarning, match="1 of 5001 rows") as warned:
            model = MiniBatchSpectral(2, sigma=0.15, random_state=0).fit(np.vstack([rows, [[100, 100]]]))
        assert len(warned) == 1
        assert model.eigenvalues_.max() > 1

    def test_components_that_are_paths(self):
        """Five paths have five eigenvalues of 1 and five of 0.9998."""
        A = sparse.block_diag([sparse.diags_array([np.ones(149)] * 2, offsets=[1, -1])] * 5).tocsr()
        for cls, seed in itertools.product([ExactSpectral, MiniBatchSpectral], range(3)):
            with pytest.warns(UserWarning, match="has 5 connected components"):
                model = cls(5, affinity="precomputed", random_state=seed).fit(A)
            np.testing.assert_allclose(model.eigenvalues_, 1, atol=1e-6)
            assert adjusted_rand_score(np.repeat(np.arange(5), 150), model.labels_) == 1


@pytest.mark.filterwarnings("ignore:The affinity graph")
def test_a_graph_of_many_more_rows_than_the_sample():
    """Few rows of the sample are neighbors of each other."""
    rows, y = make_blobs(20_000, centers=6, n_features=8, random_state=0)
    model = MiniBatchSpectral(6, affinity="knn", random_state=0, n_init=1).fit(rows.astype(np.float32))
    assert adjusted_rand_score(y, model.labels_) == 1


def test_neighbors_in_groups_that_are_far_apart():
    """float32 represents the rows, but not their distances next to their squared norms."""
    cloud = np.random.default_rng(0).normal(size=(500, 2))
    rows = np.vstack([cloud, cloud + np.array([3000, 0])]).astype(np.float32)
    with on_threads(Rows.of(check_rows(None, rows, reset=False)), 1) as opened:
        opened = opened.with_frame(measure(opened).frame, opened.dtype)
        distances2, _ = nearest_rows(opened, opened, 10, same_rows=True)
    expected = ((rows[:, None].astype(float) - rows) ** 2).sum(axis=2)
    np.fill_diagonal(expected, np.inf)
    np.testing.assert_allclose(distances2, np.sort(expected, axis=1)[:, :10] * 4.0**opened.frame.exponent, rtol=1e-3)


def test_an_outlier_does_not_determine_sigma():
    rows, y = make_blobs(400, centers=4, n_features=5, random_state=8)
    with pytest.warns(UserWarning, match="1 of 401 rows have no affinity to any other row"):
        model = MiniBatchSpectral(4, random_state=0).fit(np.vstack([rows, np.full(5, 1e9)]))
    assert adjusted_rand_score(y, model.labels_[:400]) == 1


@pytest.mark.parametrize("cls", [partial(LandmarkSpectral, n_landmarks=6), NystromSpectral])
def test_eigenvalues_that_are_rounding_errors(cls):
    with pytest.warns(ConvergenceWarning, match=r"Only \d of the n_clusters=4 leading.*zeros for the others"):
        model = cls(4, sigma=1e5, random_state=0).fit(X)
    assert not model.embedding_[:, model.eigenvalues_ <= 1e-6].any()
    assert_valid(model, X)


@pytest.mark.parametrize(
    "options",
    [
        {"affinity": "knn", "sigma": 3.0},
        {"n_neighbors": 5},
        {"neighbors": "pynndescent"},
        {"affinity": "self-tuning", "sigma": 1.0},
    ],
)
def test_parameters_without_effect(options):
    with pytest.raises(ValueError, match=r"has no effect for affinity=.*: leave it at"):
        MiniBatchSpectral(4, **options).fit(X)


def test_powers_that_have_not_converged():
    with pytest.warns(ConvergenceWarning, match=r"still changed by .* in the last of max_iter=2 steps.*raise max_iter"):
        PowerSpectral(4, max_iter=2, random_state=0).fit(X)


def test_small_affinity_matrices_are_stored(monkeypatch):
    stored = []
    monkeypatch.setattr("shoal.spectral.laplacian_operator.store_affinity", lambda affinity: stored.append(1) or affinity)
    ExactSpectral(4, random_state=0).fit(X)
    assert len(stored) == 1
    monkeypatch.setattr("shoal.spectral.laplacian_operator.MAX_STORED_BYTES", 1000)
    ExactSpectral(4, random_state=0).fit(X)
    assert len(stored) == 1
