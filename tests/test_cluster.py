"""`cluster`: requested quality, time budget, and a correct summary."""

import time

import numpy as np
import pytest
from scipy import sparse

import shoal
from tests.strategies import blobs

X, Y = blobs(20000, 5, 8)


def test_clusters_are_found():
    model = shoal.cluster(X, 8, random_state=0)
    assert shoal.metrics.accuracy(Y, model.labels_) > 0.99
    np.testing.assert_array_equal(model.labels_, model.predict(X))


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_layouts_and_metrics(layout, metric):
    model = shoal.cluster(layout(X + 5), 8, metric=metric, sample_weight=np.arange(1, len(X) + 1), random_state=0)
    assert len(np.unique(model.labels_)) == 8


def test_summary():
    summary = shoal.cluster(X, 8, random_state=0).summary_
    assert "\n" not in summary
    assert summary.startswith("8 clusters of 20,000 rows:")
    assert "good enough" in summary or "hardly moved" in summary
    assert shoal.cluster(X[:500], 400, quality=0, random_state=0).summary_.endswith("left to gain.")


def test_summary_of_a_second_fit():
    model = shoal.cluster(X, 8, random_state=0)
    assert model.fit(X[:3000]).summary_.startswith("8 clusters of 3,000 rows:")
    rows = np.random.default_rng(0).normal(size=(20_000, 6))
    assert shoal.cluster(rows, 30, quality=0.2, random_state=0).stop_reason_ == "quality"


def test_rare_rows_are_clustered():
    """A centroid that starts among rare, distant rows stays there until the batch contains some of them."""
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.normal(size=(60_000, 3)), 1000 + rng.normal(size=(6, 3))])
    start = rows[[0, 1, 2, 60_003]]
    model, exact = (shoal.cluster(rows, 4, init=start, quality=q, random_state=0) for q in (0.01, 0))
    assert model.inertia_ < 1.01 * exact.inertia_
    assert np.bincount(model.labels_[60_000:]).max() == 6


@pytest.mark.parametrize("few", ["weight", "energy"])
def test_batches_without_weight_or_energy_do_not_stop_the_fit(few):
    rng = np.random.default_rng(1)
    rows, weights = np.zeros((60_000, 2)), np.ones(60_000)
    at = rng.choice(60_000, 30, replace=False)
    rows[at] = rng.normal(size=(30, 2))
    if few == "weight":
        rows, weights = rng.normal(size=(60_000, 2)), np.zeros(60_000)
        weights[at] = 1
    model = shoal.cluster(rows, 4, init=rows[at[:4]], sample_weight=weights, random_state=0)
    exact = shoal.KMeans(4, init=rows[at[:4]]).fit(rows, sample_weight=weights)
    assert model.inertia_ <= 1.01 * exact.inertia_


@pytest.mark.filterwarnings("ignore:time_budget=0.001 seconds are too short")  # raised or not, depending on the machine's load
def test_summary_mentions_the_time_budget():
    rows = np.random.default_rng(0).normal(size=(200_000, 8)).astype(np.float32)
    shoal.cluster(rows[:3000], 50, random_state=0)  # compile kernels
    started = time.perf_counter()
    model = shoal.cluster(rows, 50, quality=0, time_budget=1e-3, random_state=0)
    assert "time was up" in model.summary_
    assert len(model.history_) == 1
    assert time.perf_counter() - started < 60


def test_a_path_is_opened(tmp_path):
    np.save(tmp_path / "rows.npy", X)
    records = []
    options = {"n_init": 2, "callback": records.append, "random_state": 0}
    model = shoal.cluster(str(tmp_path / "rows.npy"), 8, **options)
    np.testing.assert_array_equal(model.labels_, shoal.cluster(X, 8, n_init=2, random_state=0).labels_)
    assert [record["step"] for record in records].count(1) == 2  # the first step of each initialization


@pytest.mark.parametrize("k", [0, "8", 2.5, True])
def test_invalid_k_is_rejected(k):
    with pytest.raises(ValueError, match="'k' parameter of cluster"):
        shoal.cluster(X, k)


@pytest.mark.parametrize("quality", [-1, 1.0, "good"])
def test_invalid_quality_is_rejected(quality):
    with pytest.raises(ValueError, match="quality"):
        shoal.cluster(X, 8, quality=quality)
