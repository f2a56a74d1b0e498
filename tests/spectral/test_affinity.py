"""Affinities computed by the column equal the oracle, for every layout, block size and number of threads."""

import numpy as np
import pytest
from scipy import sparse

from shoal.data.rows import Rows
from shoal.data.statistics import measure
from shoal.execution.threads import Threads
from shoal.fit.input import check_rows
from shoal.kernels.affinity import fall_off
from shoal.spectral import affinity, tiles
from shoal.spectral.affinity_factory import AffinityParameters, make_affinity, make_kernel_affinity
from shoal.spectral.laplacian import estimate_degrees
from shoal.spectral.neighbors import nearest_rows
from tests import naive
from tests.strategies import blobs, cloud

LAYOUTS = pytest.mark.parametrize("layout", [np.asarray, np.asfortranarray, sparse.csr_array])
DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])
X = cloud(70, 4)
IDS = np.array([0, 3, 17, 18, 40, 69])
RBF = AffinityParameters("rbf")


@pytest.fixture
def small(monkeypatch):
    """Use blocks of few rows, so that there are many blocks."""
    monkeypatch.setattr(tiles, "MAX_BLOCK_ROWS", 16)
    monkeypatch.setattr(tiles, "TILE_ENTRIES", 64)


def opened(X, **options):
    executor = Threads(options.pop("n_threads", 2)).__enter__()
    rows = Rows.of(check_rows(None, X, reset=False), **options).with_executor(executor)
    return rows.with_frame(measure(rows).frame, rows.dtype)


def kernel_affinity(X, sigma=1.5, **options):
    rows = opened(X, **options)
    return affinity.KernelAffinity(rows, np.full(len(rows), 1 / np.ldexp(sigma, rows.frame.exponent)))


@DTYPES
def test_exponential_function(dtype):
    x = np.concatenate([np.linspace(0, 90, 10_001), [1e3, 1e30, np.inf]]).astype(dtype)[None]
    S = x.copy()
    fall_off(S, np.zeros(1, dtype), np.ones(1, dtype), np.ones(x.shape[1], dtype))
    exact, normal = np.exp(-x.astype(np.float64)), x < 87.3  # below, float32 has no normal numbers
    np.testing.assert_allclose(S[normal], exact[normal], rtol=2e-6 if dtype == np.float32 else 1e-15)
    assert (S[~normal] <= 2 * np.finfo(np.float32).tiny).all()
    assert S[0, 0] == 1
    assert S[0, -1] == 0


@LAYOUTS
@DTYPES
@pytest.mark.parametrize("offset", [0, 1000])
@pytest.mark.usefixtures("small")
def test_equals_the_oracle(layout, dtype, offset):
    rows = (np.round(X * 64) / 64 + offset).astype(dtype)
    A, B = naive.affinity(rows, 1.5), np.random.default_rng(0).normal(size=(70, 3))
    found = kernel_affinity(layout(rows), 1.5)
    loose = {"rtol": 1e-4, "atol": 1e-5} if dtype == np.float32 or (offset and layout is sparse.csr_array) else {"rtol": 1e-9}
    np.testing.assert_allclose(found.dense(), A, **loose)
    np.testing.assert_allclose(found.submatrix(IDS), A[np.ix_(IDS, IDS)], **loose)
    np.testing.assert_allclose(found.degrees(), A.sum(axis=1), **loose)
    np.testing.assert_allclose(found.product(B), A @ B, **{**loose, "atol": 1e-4 if "atol" in loose else 1e-12})
    np.testing.assert_allclose(found.product(B[:6], IDS), A[:, IDS] @ B[:6], **{**loose, "atol": 1e-4})
    np.testing.assert_allclose(
        np.stack(found.column_moments(IDS)), [A[:, IDS].sum(axis=1), (A[:, IDS] ** 2).sum(axis=1)], **loose
    )


@LAYOUTS
@pytest.mark.usefixtures("small")
def test_new_rows(layout):
    new, B = cloud(33, 4, seed=1), np.random.default_rng(0).normal(size=(70, 3))
    for fitted in (np.asarray, sparse.csr_array):
        found = kernel_affinity(fitted(X))
        np.testing.assert_allclose(
            found.out_of_sample_product(opened(layout(new)), B), naive.affinity(new, 1.5, Y=X) @ B, atol=1e-10
        )


@pytest.mark.usefixtures("small")
def test_local_scales():
    far = np.sqrt(np.sort(naive.distances(X, X), axis=1)[:, 5])
    found, sigma = make_kernel_affinity(opened(X), AffinityParameters("self-tuning", None, 5), 3, 0)
    np.testing.assert_allclose(found.dense(), naive.affinity(X, np.sqrt(np.outer(far, far))), atol=1e-10)
    assert sigma is None
    new = cloud(9, 4, seed=1)
    scale = np.sqrt(np.sort(naive.distances(new, X), axis=1)[:, 4])
    expected = naive.affinity(new, np.sqrt(np.outer(scale, far)), Y=X).sum(axis=1)
    np.testing.assert_allclose(found.out_of_sample_product(opened(new), np.ones((70, 1)))[:, 0], expected)


def test_duplicates_have_a_scale():
    rows = np.repeat(cloud(9, 3), 10, axis=0)
    found, _ = make_kernel_affinity(opened(rows), AffinityParameters("self-tuning", None, 5), 3, 0)
    assert np.isfinite(found.dense()).all()


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
@pytest.mark.usefixtures("small")
def test_result_does_not_depend_on_the_number_of_threads(layout):
    rows, B = layout(cloud(300, 5, dtype=np.float32)), np.random.default_rng(0).normal(size=(300, 4))
    one, *others = (kernel_affinity(rows, n_threads=t) for t in (1, 2, 4))
    for other in others:
        np.testing.assert_array_equal(one.product(B), other.product(B))
        np.testing.assert_array_equal(one.degrees(), other.degrees())


@LAYOUTS
@DTYPES
@pytest.mark.usefixtures("small")
def test_neighbors(layout, dtype):
    rows = opened(layout(X.astype(dtype)))
    distances2, neighbors = nearest_rows(rows, rows, 7, same_rows=True)
    np.testing.assert_array_equal(neighbors, naive.neighbors(X.astype(dtype), 7))
    np.testing.assert_allclose(distances2, np.sort(naive.distances(X, X), axis=1)[:, 1:8], rtol=1e-4)


def test_small_distances_are_computed_in_float64():
    """Two clusters have a thousandth of the width of the data: float32 would lose the distances within them."""
    rows = np.repeat([[0.0], [1e3]], 50, axis=0).astype(np.float32) + np.linspace(0, 1, 100, dtype=np.float32)[:, None]
    found = kernel_affinity(rows, sigma=0.05)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found.dense(), naive.affinity(rows, 0.05), atol=1e-8)


class TestSigma:
    @pytest.mark.parametrize("exponent", [-150, 0, 150])
    def test_scales_with_the_rows(self, exponent):
        rows = opened(X * 2.0**exponent)
        sigma = make_kernel_affinity(rows, RBF, 3, 0)[1]
        assert sigma == pytest.approx(make_kernel_affinity(opened(X), RBF, 3, 0)[1] * 2.0**exponent)

    @pytest.mark.parametrize("exponent", [-300, 0, 300])
    def test_published_sigma_gives_the_same_affinities(self, exponent):
        rows = X * 2.0**exponent
        found, sigma = make_kernel_affinity(opened(rows), RBF, 3, 0)
        again, same = make_kernel_affinity(opened(rows), AffinityParameters("rbf", sigma), 3, 0)
        assert sigma == same
        np.testing.assert_allclose(found.dense(), again.dense(), atol=1e-10)

    def test_is_a_distance_within_clusters(self):
        rows, y = blobs(600, 4, 5)
        far = np.sqrt(naive.distances(rows, rows))
        sigma = make_kernel_affinity(opened(rows), RBF, 5, 0)[1]
        assert 0 < sigma < far[y[:, None] == y].max()

    def test_of_duplicates(self):
        assert make_kernel_affinity(opened(np.ones((9, 2))), RBF, 3, 0)[1] == 1
        rows = np.repeat([[0.0], [3.0]], 30, axis=0)
        assert make_kernel_affinity(opened(rows), RBF, 2, 0)[1] == pytest.approx(3)


class TestSampledDegrees:
    def test_error_is_estimated(self):
        rows = cloud(600, 3)
        found = kernel_affinity(rows)
        exact = found.degrees()
        estimates, errors = [], []
        for seed in range(20):
            degrees, error = estimate_degrees(found, 60, seed)
            estimates.append(error)
            errors.append(np.sqrt(np.mean((degrees / exact - 1) ** 2)))
        assert np.mean(estimates) == pytest.approx(np.mean(errors), rel=0.2)

    def test_are_unbiased(self):
        found = kernel_affinity(cloud(200, 3))
        mean = np.mean([estimate_degrees(found, 20, seed)[0] for seed in range(400)], axis=0)
        np.testing.assert_allclose(mean, found.degrees(), rtol=0.15)

    def test_of_a_graph_are_exact(self):
        rows = opened(cloud(600, 3))
        found = make_affinity(rows, AffinityParameters("knn", None, 20), 3, 0).affinity
        degrees, error = estimate_degrees(found, 5, 0)
        assert error == 0
        np.testing.assert_array_equal(degrees, found.degrees())

    def test_from_one_column_have_an_unknown_error(self):
        with pytest.warns(UserWarning, match="degree_samples=1 columns have a relative error of inf"):
            assert estimate_degrees(kernel_affinity(X), 1, 0)[1] == np.inf

    def test_of_rows_with_few_affinities(self):
        """Most rows have no affinity to the sample: they get a small degree instead of zero, and a warning is issued."""
        found = kernel_affinity(np.arange(600.0)[:, None] // 2, 0.2)
        with pytest.warns(UserWarning, match=r"degree_samples=50 columns have a relative error.*raise it"):
            degrees, error = estimate_degrees(found, 50, 0)
        assert degrees.min() > 0
        assert error > 0.8

    def test_of_isolated_rows(self):
        with pytest.raises(ValueError, match=r"No row has an affinity to any of the degree_samples=10 .*raise it, or sigma"):
            estimate_degrees(kernel_affinity(np.arange(600.0)[:, None], 0.05), 10, 0)

    def test_of_all_columns_are_exact(self):
        found = kernel_affinity(X)
        degrees, error = estimate_degrees(found, 1000, 0)
        assert error == 0
        np.testing.assert_array_equal(degrees, found.degrees())
