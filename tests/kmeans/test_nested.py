"""`NestedKMeans`: equal to an oracle of the paper's pseudo-code, and its guarantees."""

import numpy as np
import pytest
from scipy import sparse

from shoal import KMeans, NestedKMeans
from shoal.data.rows import Rows
from shoal.data.sources import find_source
from shoal.execution.threads import on_threads
from shoal.fit import partition
from shoal.fit.random_streams import generator
from shoal.kmeans import nested
from shoal.kmeans.dispatch import ALGORITHMS, select_algorithm
from shoal.kmeans.growing_batches import GrowingBatches
from tests import naive
from tests.strategies import blobs, cloud

X, _ = blobs(3000, 6, 5)
NAMES = ["auto", *ALGORITHMS]
ROUGH = X + 2 * cloud(3000, 6, 1)  # overlapping blobs need more steps


def history(model, *names):
    return [tuple(record[name] for name in names) for record in model.history_]


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("rho", [0.3, 1.0, 10.0])
@pytest.mark.parametrize("algorithm", NAMES)
def test_steps_equal_the_oracle(algorithm, rho, layout):
    if algorithm == "projected" and layout is sparse.csr_array:
        pytest.skip("needs dense rows")
    C = ROUGH[:7]
    with on_threads(Rows.of(find_source(layout(ROUGH)))) as rows:
        batches = GrowingBatches(rows, len(C), generator(5, 0, 1))
        _, assign = select_algorithm(rows, 7, algorithm)
        state = partition.initial_partition(batches.batch(200), C)
        for size, labels, centers in naive.nested(ROUGH, C, batches.order.first(len(X)), 200, rho, 25):
            before = state.labels
            state, info = nested.step(batches, state, nested.NestedPlan(assign, rho, 200, watch=False))
            assert info.batch == size
            expected = np.empty(size, int)
            expected[batches.order.first(size) if size == len(X) else slice(None)] = labels
            np.testing.assert_array_equal(before, expected)
            np.testing.assert_allclose(state.centers, centers, rtol=1e-10)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_all_algorithms_give_the_same_result(dtype):
    rows = ROUGH.astype(dtype)
    models = [NestedKMeans(9, init=rows[:9], batch_size=150, algorithm=a, random_state=0).fit(rows) for a in NAMES]
    for model in models[1:]:
        np.testing.assert_array_equal(model.labels_, models[0].labels_)
        np.testing.assert_array_equal(model.cluster_centers_, models[0].cluster_centers_)
        assert history(model, "batch", "reassigned") == history(models[0], "batch", "reassigned")


def test_bounds_save_distances():
    options = {"init": ROUGH[:20], "batch_size": 500, "random_state": 0}
    models = [NestedKMeans(20, algorithm=a, **options).fit(ROUGH) for a in ("elkan", "lloyd")]
    bounded, plain = (sum(record["distances"] for record in model.history_) for model in models)
    assert bounded < plain / 2


def test_projected_rejects_sparse_rows():
    with pytest.raises(ValueError, match=r"algorithm='projected' needs dense rows"):
        NestedKMeans(3, algorithm="projected").fit(sparse.csr_array(X))


def test_ends_at_a_fixed_point_of_lloyd():
    model = NestedKMeans(6, init=ROUGH[:6], batch_size=100, tol=0, random_state=0).fit(ROUGH)
    assert model.stop_reason_ == "converged"
    assert model.remaining_ == 0
    assert model.history_[-1]["batch"] == len(ROUGH)
    further = KMeans(6, init=model.cluster_centers_, tol=0).fit(ROUGH)
    np.testing.assert_allclose(further.cluster_centers_, model.cluster_centers_, rtol=1e-12)


def test_batches_double_up_to_a_quarter_of_the_rows_and_are_nested():
    sizes = [record["batch"] for record in NestedKMeans(6, batch_size=100, random_state=0).fit(ROUGH).history_]
    assert set(sizes) <= {100, 200, 400, 3000}
    assert sizes == sorted(sizes)
    with on_threads(Rows.of(find_source(ROUGH))) as rows:
        batches = GrowingBatches(rows, 5, generator(0))
        small, large = (batches.batch(size).take(np.arange(100)) for size in (100, 200))
    np.testing.assert_array_equal(small, large)


def test_one_batch_of_all_rows_equals_lloyd():
    model, lloyd = (m.fit(ROUGH) for m in (NestedKMeans(6, init=ROUGH[:6], batch_size=9999), KMeans(6, init=ROUGH[:6])))
    np.testing.assert_array_equal(model.cluster_centers_, lloyd.cluster_centers_)
    assert model.n_iter_ == lloyd.n_iter_


def test_result_does_not_depend_on_threads():
    rows = np.tile(ROUGH, (6, 8)).astype(np.float32)
    models = [NestedKMeans(9, init=rows[:9], n_threads=t, random_state=0).fit(rows) for t in (1, 2, 4)]
    for model in models[1:]:
        np.testing.assert_array_equal(model.cluster_centers_, models[0].cluster_centers_)


def test_a_memory_map_is_not_copied(tmp_path):
    rows = np.lib.format.open_memmap(tmp_path / "X.npy", "w+", np.float64, ROUGH.shape)
    rows[:] = ROUGH
    with on_threads(Rows.of(find_source(rows))) as all_rows:
        assert all_rows.materialize(np.arange(1000), 5).source.is_map
    model, copied = (NestedKMeans(6, init=ROUGH[:6], batch_size=100, random_state=0).fit(R) for R in (rows, ROUGH))
    np.testing.assert_array_equal(model.cluster_centers_, copied.cluster_centers_)


def test_rows_of_weight_zero_have_no_effect():
    weights = np.ones(len(X))
    weights[: len(X) // 2] = 0
    rows = ROUGH.copy()
    rows[: len(X) // 2] += 1000
    model = NestedKMeans(5, batch_size=100, random_state=0).fit(rows, sample_weight=weights)
    assert np.abs(model.cluster_centers_).max() < 500
    assert len(np.unique(model.labels_[weights > 0])) == 5


class TestQuality:
    @pytest.mark.parametrize("seed", range(5))
    def test_bounds_the_excess_energy(self, seed):
        rows = cloud(60000, 8, seed, np.float32)
        early, late = (NestedKMeans(20, init=rows[:20], quality=q, tol=0, random_state=seed).fit(rows) for q in (0.02, 0.0))
        assert early.inertia_ <= 1.02 * late.inertia_
        assert sum(record["rows"] for record in early.history_) < 0.5 * sum(record["rows"] for record in late.history_)
        assert 0 < early.remaining_ < 0.02

    def test_energy_of_new_rows_falls_less_with_larger_batches(self):
        """Centroids fit the rows of a small batch better than other rows; the difference vanishes as the batch grows."""
        rows = cloud(20000, 20)
        model = NestedKMeans(50, batch_size=500, quality=1e-9, rho=10, random_state=0).fit(rows)
        falls = []
        for size in (1000, 2000, 4000):
            newest = [record["newest"] for record in model.history_ if record["batch"] == size]
            falls.append(1 - newest[-1] / newest[0])
        assert falls[0] > 0.05
        assert falls == sorted(falls, reverse=True)
        assert falls[-1] < 0.5 * falls[0]

    def test_of_a_fit_of_energy_zero(self):
        rows = np.repeat([[0.0], [1.0]], 500, axis=0)
        assert NestedKMeans(2, batch_size=50, quality=0.01, random_state=0).fit(rows).remaining_ == 0


@pytest.mark.parametrize(
    "bad", [{"batch_size": 0}, {"rho": 0}, {"rho": -1}, {"quality": 1}, {"quality": -0.1}, {"algorithm": "k"}]
)
def test_invalid_parameters_are_rejected_by_name(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        NestedKMeans(3, **bad).fit(X)


@pytest.mark.parametrize("max_iter", range(1, 16))
def test_labels_are_complete_if_the_fit_ends_after_the_batch_has_grown(max_iter):
    """Rows that have just joined the batch have no label until the next step."""
    X, _ = blobs(400, 3, 4)
    model = NestedKMeans(4, batch_size=100, rho=1e9, tol=0.0, max_iter=max_iter, init=X[:4], random_state=0).fit(X)
    np.testing.assert_array_equal(model.labels_, model.predict(X))


def test_energy_of_new_rows_is_computed_between_the_first_batch_and_all_rows():
    """And only if the fit may stop early."""
    options = {"batch_size": 100, "random_state": 0, "tol": 0, "max_iter": 60}
    watched, plain = (NestedKMeans(6, quality=q, **options).fit(ROUGH).history_ for q in (1e-9, 0.0))
    sizes = {record["batch"] for record in watched}
    assert {100, 200, len(ROUGH)} <= sizes
    for record in watched:
        assert np.isnan(record["newest"]) == (record["batch"] in (100, len(ROUGH)))
    assert all(np.isnan(record["newest"]) for record in plain)
