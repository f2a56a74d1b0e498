"""`MiniBatchSpectral`: the oracle's steps, the vectors' law, and the way to the exact eigenvectors."""

from contextlib import contextmanager

import numpy as np
import pytest
from scipy import sparse
from sklearn.metrics import adjusted_rand_score

from shoal import ExactSpectral, MiniBatchSpectral, PowerSpectral
from shoal.data.rows import Rows
from shoal.data.sources import ArraySource
from shoal.execution.threads import on_threads
from shoal.fit.random_streams import generator
from shoal.spectral import gradient_variance, manifold
from shoal.spectral.affinity import KernelAffinity
from shoal.spectral.laplacian import Laplacian
from shoal.spectral.minibatch import Batches, quotients
from tests import naive
from tests.strategies import blobs, cloud

pytestmark = pytest.mark.filterwarnings("ignore:Only .* leading eigenvalues are positive")

FORMS = pytest.mark.parametrize(
    ("batch", "size", "vectors"), [("shuffled", 20, None), ("shuffled", 20, 5), ("drawn", 20, 4), ("shuffled", 1000, None)]
)
SEED = 3


def fit(X, k=3, **options):
    options = {"init": "random", "steps": "adagrad", "tol": 0, "max_iter": 5, "random_state": SEED, "sigma": 2.0, **options}
    return MiniBatchSpectral(k, **options).fit(X)


@contextmanager
def laplacian_of(X):
    with on_threads(Rows.of(ArraySource(X)), 1) as rows:
        affinity = KernelAffinity(rows, np.full(len(X), 0.5))
        yield Laplacian(affinity, affinity.degrees())


def rs(n, size, count, drawn, t):
    size = min(size, n)
    return Batches(n, size, min(count or size, size), drawn, SEED).draw(t)


class TestIsTheOracle:
    @FORMS
    @pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
    @pytest.mark.parametrize("steps", [1, 2, 10])
    def test_step_by_step(self, layout, batch, size, vectors, steps):
        X = cloud(80, 3)
        L = naive.laplacian(naive.affinity(X, 2.0))
        start = manifold.random_point(80, 3, generator(SEED, 1 << 43))
        batches = [rs(80, size, vectors, batch == "drawn", t).toarray() for t in range(steps)]
        W = naive.mini_batch_spectral(L, start, batches, 0.5 / np.sqrt(80))
        model = fit(layout(X), batch=batch, batch_size=size, n_vectors=vectors, learning_rate=0.5, max_iter=steps)
        assert naive.sines(W, model.embedding_).max() < 1e-6
        assert (model.n_iter_, model.stop_reason_) == (steps, "max_iter")

    @FORMS
    @pytest.mark.parametrize("steps", [1, 2, 10])
    def test_harmonic_steps(self, batch, size, vectors, steps):
        X = cloud(80, 3)
        L = naive.laplacian(naive.affinity(X, 2.0))
        start = manifold.random_point(80, 3, generator(SEED, 1 << 43))
        batches = [rs(80, size, vectors, batch == "drawn", t).toarray() for t in range(steps)]
        W = naive.harmonic_spectral(L, start, batches)
        model = fit(X, batch=batch, batch_size=size, n_vectors=vectors, steps="harmonic", max_iter=steps)
        assert naive.sines(W, model.embedding_).max() < 1e-5
        np.testing.assert_allclose(model.eigenvalues_, np.linalg.eigvalsh(W.T @ L @ W)[::-1], atol=1e-5)

    def test_the_record(self):
        X, k, n, m = cloud(80, 3), 3, 80, 20
        L = naive.laplacian(naive.affinity(X, 2.0))
        start = manifold.random_point(n, k, generator(SEED, 1 << 43))
        model = fit(X, batch_size=m)
        first, last = model.history_[0], model.history_[-1]
        R = rs(n, m, None, False, 0).toarray()
        G = sum(np.outer(L @ r, r @ start) for r in R) / len(R)
        assert first["objective"] == pytest.approx(-np.trace(start.T @ G) / 2)
        assert first["columns"] == m
        assert first["flops"] == 2 * n * k * m + 6 * n * k**2 - k**2
        assert last["step"] == 5
        path = [start, *(fit(X, batch_size=m, max_iter=t).embedding_ for t in (1, 2))]
        assert model.history_[1]["change"] == pytest.approx(np.sqrt(np.mean(naive.sines(path[1], path[2]) ** 2)))


class TestVectors:
    @FORMS
    def test_are_the_identity_in_the_mean(self, batch, size, vectors):
        n, size = 30, min(size, 30)
        batches = Batches(n, size, min(vectors or size, size), batch == "drawn", 0)
        total = np.zeros((n, n))
        for t in range(3000):
            R = batches.draw(t).toarray()
            total += R.T @ R / len(R) / 3000
        np.testing.assert_allclose(total, np.eye(n), atol=0.25)
        np.testing.assert_allclose(np.diag(total).mean(), 1, atol=0.03)

    def test_shuffled_ones_see_each_column_once_an_epoch(self):
        batches = Batches(60, 20, 5, False, 0)
        seen = [batches.draw(t).indices for t in range(6)]
        assert all(set(np.concatenate(epoch)) == set(range(60)) for epoch in (seen[:3], seen[3:]))
        assert not np.array_equal(seen[0], seen[3])

    def test_entries(self):
        R = Batches(60, 20, 5, True, 0).draw(1)
        np.testing.assert_allclose(np.abs(R.data), np.sqrt(60 / 4))
        assert {-1, 1} == set(np.sign(R.data))
        assert not np.array_equal(R.toarray(), Batches(60, 20, 5, True, 1).draw(1).toarray())


class TestVariance:
    @pytest.mark.parametrize("p", [0.1, 0.5, 1.0])
    @pytest.mark.parametrize("count", [1, 4])
    def test_is_that_of_a_simulation(self, p, count):
        rng = np.random.default_rng(0)
        L = naive.laplacian(naive.affinity(cloud(12, 2), 1.0))
        w = rng.normal(size=12)
        w /= np.linalg.norm(w)
        r = rng.choice([-1, 0, 1], (200_000 // count, count, 12), p=[p / 2, 1 - p, p / 2]) / np.sqrt(p)
        gradients = ((r @ w)[..., None] * (r @ L)).mean(axis=1)
        np.testing.assert_allclose(gradients.mean(axis=0), L @ w, atol=0.05)
        np.testing.assert_allclose(gradients.var(axis=0), gradient_variance(L, w, p, count), rtol=0.1)

    def test_the_papers_bound(self):
        L = naive.laplacian(naive.affinity(cloud(30, 2), 1.0))
        w = np.full(30, 30**-0.5)
        for p in (0.05, 0.3):
            assert (gradient_variance(L, w, p) <= (L @ w) ** 2 + (L**2).sum(axis=1) / p).all()

    @pytest.mark.parametrize(
        ("L", "w", "p"), [(np.ones((2, 3)), [1, 1], 0.5), (np.eye(2), [1], 0.5), (np.eye(2), [1, 0], 0), (np.eye(2), [1, 0], 2)]
    )
    def test_refuses(self, L, w, p):
        with pytest.raises(ValueError, match="must"):
            gradient_variance(L, w, p)


class TestConverges:
    @pytest.mark.parametrize("init", ["random", "sample"])
    @pytest.mark.parametrize("steps", ["adagrad", "harmonic"])
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_to_the_exact_eigenvectors(self, init, steps, dtype, monkeypatch):
        monkeypatch.setattr("shoal.spectral.minibatch.START", 60)
        X, _ = blobs(300, 3, 4, spread=2.0, dtype=dtype)
        U, values = naive.leading(naive.laplacian(naive.affinity(X, 6.0)), 4)
        angles = []
        for count in (4, 40, 1000):
            model = fit(X, 4, sigma=6.0, init=init, steps=steps, batch_size=60, max_iter=count)
            angles.append(naive.sines(U, model.embedding_.astype(float)).max())
        assert angles[-1] < 0.05
        assert angles[-1] < angles[-2] < angles[0] or angles[-1] < 1e-3  # float32 has no more
        np.testing.assert_allclose(model.eigenvalues_, values, atol=0.02)

    def test_at_once_where_the_sample_is_all_rows(self):
        X, _ = blobs(300, 3, 4, spread=2.0)
        model = MiniBatchSpectral(4, sigma=6.0, random_state=0).fit(X)
        U, values = naive.leading(naive.laplacian(naive.affinity(X, 6.0)), 4)
        assert naive.sines(U, model.embedding_).max() < 0.01
        np.testing.assert_allclose(model.eigenvalues_, values, atol=1e-3)
        assert model.stop_reason_ == "converged" or model.n_iter_ == 1

    def test_until_the_subspace_rests(self):
        X, _ = blobs(300, 3, 4, spread=2.0)
        model = fit(X, 4, sigma=6.0, batch_size=300, max_iter=3000, tol=0.01)
        assert model.stop_reason_ == "converged"
        assert model.history_[-1]["change"] <= 0.01 < model.history_[-2]["change"]


class TestOptions:
    @pytest.mark.parametrize("kind", ["rbf", "rbf-norm", "self-tuning", "knn"])
    @pytest.mark.filterwarnings("ignore:The graph of affinities")
    def test_every_affinity_finds_blobs(self, kind):
        X, y = blobs(300, 4, 5)
        model = MiniBatchSpectral(5, affinity=kind, random_state=0).fit(X)
        assert adjusted_rand_score(y, model.labels_) == 1

    def test_stored_is_computed(self):
        X = cloud(200, 3)
        np.testing.assert_allclose(fit(X, store=True).embedding_, fit(X).embedding_, atol=1e-8)

    @pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
    def test_precomputed_is_computed(self, layout):
        X = cloud(200, 3)
        given = fit(layout(naive.affinity(X, 2.0)), affinity="precomputed", sigma=None, batch_size=30)
        np.testing.assert_allclose(given.embedding_, fit(X, batch_size=30).embedding_, atol=1e-8)

    def test_sampled_degrees(self):
        X, y = blobs(600, 4, 5)
        model = MiniBatchSpectral(5, degree_samples=200, random_state=0).fit(X)
        assert 0 < model.degree_error_ < 0.5
        assert adjusted_rand_score(y, model.labels_) == 1
        assert MiniBatchSpectral(5, random_state=0).fit(X).degree_error_ == 0

    def test_threads_change_nothing(self, monkeypatch):
        monkeypatch.setattr("shoal.spectral.tiles.SIDE", 64)
        X = cloud(500, 5, dtype=np.float32)
        one, *others = (fit(X, n_threads=t, init="sample", batch_size=50) for t in (1, 2, 4))
        for other in others:
            np.testing.assert_array_equal(one.embedding_, other.embedding_)
            np.testing.assert_array_equal(one.labels_, other.labels_)

    def test_time_is_kept(self):
        model = fit(cloud(300, 3), max_iter=10**6, time_budget=0.5)
        assert model.stop_reason_ == "time_budget"

    def test_a_callback_ends_it(self):
        seen = []
        model = fit(cloud(100, 3), callback=lambda record: seen.append(record["objective"]) or len(seen) == 2)
        assert (model.stop_reason_, model.n_iter_, len(seen)) == ("callback", 2, 2)

    def test_unit_rows(self):
        X, y = blobs(300, 4, 5)
        model = MiniBatchSpectral(5, normalize=True, random_state=0).fit(X)
        np.testing.assert_allclose(np.linalg.norm(model.kmeans_.cluster_centers_, axis=1), 1, atol=0.2)
        assert adjusted_rand_score(y, model.labels_) == 1

    def test_more_vectors_than_columns(self):
        with pytest.raises(ValueError, match=r"n_vectors=30 vectors share batch_size=20"):
            fit(cloud(50, 2), batch_size=20, n_vectors=30)


class TestEigenvalues:
    @pytest.mark.parametrize("steps", ["adagrad", "harmonic"])
    @pytest.mark.parametrize(
        "options", [{}, {"store": True}, {"affinity": "knn", "sigma": None, "init": "random"}], ids=["few", "stored", "graph"]
    )
    def test_are_those_of_the_subspace(self, steps, options, monkeypatch):
        monkeypatch.setattr("shoal.spectral.minibatch.START", 1000 if not options else 50)
        X, _ = blobs(300, 3, 4, spread=4.0)
        options = {"init": "sample", "sigma": 6.0, **options}
        model = fit(X, 4, steps=steps, batch_size=20, max_iter=2, **options)
        A = naive.affinity(X, 6.0)
        if "affinity" in options:
            A = np.zeros((300, 300))
            A[np.repeat(np.arange(300), 10), naive.neighbors(X, 10).ravel()] = 0.5
            A += A.T
        W = model.embedding_
        np.testing.assert_allclose(W.T @ naive.laplacian(A) @ W, np.diag(model.eigenvalues_), atol=1e-6)

    @pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
    def test_of_rows_that_are_all_alike(self):
        model = MiniBatchSpectral(4, affinity="precomputed", random_state=0).fit(np.ones((500, 500)))
        np.testing.assert_allclose(model.eigenvalues_, [1, 0, 0, 0], atol=1e-6)


class TestUnevenBatches:
    @pytest.mark.parametrize("batch", ["shuffled", "drawn"])
    def test_no_column_is_left_out(self, batch):
        batches = Batches(30, 10, 4, batch == "drawn", 0)
        draws = [batches.draw(t) for t in range(3000)]
        assert np.mean([R.nnz for R in draws]) == pytest.approx(10, abs=0.2)
        total = sum(R.T @ R for R in draws).toarray() / 4 / 3000
        np.testing.assert_allclose(np.diag(total), 1, atol=0.25)
        np.testing.assert_allclose(np.diag(total).mean(), 1, atol=0.03)

    @pytest.mark.filterwarnings("ignore:The subspace still changed")
    def test_an_empty_draw_is_no_rest(self):
        model = fit(cloud(100, 2), batch="drawn", batch_size=1, max_iter=60, tol=1e-12)
        assert 0 in [record["columns"] for record in model.history_]
        assert model.stop_reason_ == "max_iter"


class TestWhatIsToldAndRefused:
    @pytest.mark.parametrize("cls", [MiniBatchSpectral, PowerSpectral])
    def test_records_are_told_as_they_are_kept(self, cls):
        told = []
        model = cls(3, random_state=0, max_iter=4, tol=0, callback=told.append).fit(cloud(100, 2))
        assert told == model.history_

    def test_a_step_length_that_harmonic_steps_do_not_have(self):
        with pytest.raises(ValueError, match=r"learning_rate=0.3 is AdaGrad's.*steps='adagrad'"):
            fit(cloud(50, 2), steps="harmonic", learning_rate=0.3)

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_a_step_beyond_all_bounds(self, dtype):
        X = cloud(50, 2).astype(dtype)
        with pytest.raises(ValueError, match="learning_rate"):
            fit(X, learning_rate=1e300)
        assert np.isfinite(fit(X, learning_rate=1e6).embedding_).all()

    @pytest.mark.filterwarnings("ignore:The graph of affinities")
    def test_approximate_neighbours_of_sparse_rows(self):
        with pytest.warns(UserWarning, match=r"neighbors='pynndescent' is for dense rows.*found exactly"):
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
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < len(X) ** 2 * 4 / 10


def test_it_is_near_the_exact_one():
    X, _ = blobs(1500, 5, 6, spread=1.5)
    one, other = (cls(6, random_state=0).fit(X) for cls in (MiniBatchSpectral, ExactSpectral))
    assert adjusted_rand_score(one.labels_, other.labels_) > 0.95


class TestQuotients:
    """W' L W from some rows of L."""

    X = cloud(600, 3)
    dense = naive.laplacian(naive.affinity(X, 2.0))

    def test_of_eigenvectors_are_exact(self):
        U, values = naive.leading(self.dense, 4)
        with laplacian_of(self.X) as L:
            np.testing.assert_allclose(quotients(L, U, 30, np.random.default_rng(0)), np.diag(values), atol=1e-9)

    def test_of_other_vectors_are_near(self):
        W = manifold.retract(self.dense @ manifold.random_point(600, 4, np.random.default_rng(1), np.dtype(np.float64)))
        with laplacian_of(self.X) as L:
            found = np.mean([quotients(L, W, 300, np.random.default_rng(s)) for s in range(50)], axis=0)
        np.testing.assert_allclose(found, W.T @ self.dense @ W, atol=0.02)

    def test_an_eigenvector_of_few_rows_is_not_overlooked(self):
        X = cloud(4000, 3)
        X[:3] = 1000 + X[:3] / 10
        W = np.zeros((4000, 1))
        W[:3] = 3**-0.5
        with laplacian_of(X) as L:
            assert quotients(L, W, 20, np.random.default_rng(0))[0, 0] == pytest.approx(1, abs=0.05)


def test_eigenvalues_of_many_rows_are_near_those_of_l():
    y = np.arange(3000) % 4
    X = np.random.default_rng(0).normal(size=(3000, 3)) + 40 * y[:, None]
    model = MiniBatchSpectral(4, sigma=2.0, random_state=0).fit(X)
    np.testing.assert_allclose(model.eigenvalues_, 1, atol=5e-3)
