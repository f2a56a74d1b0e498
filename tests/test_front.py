"""The front door: as good as asked, in time, and honest about it."""

import time

import numpy as np
import pytest
from scipy import sparse

import shoal
from tests.strategies import blobs

X, Y = blobs(20000, 5, 8)


def test_finds_the_clusters():
    model = shoal.cluster(X, 8, random_state=0)
    assert shoal.metrics.accuracy(Y, model.labels_) > 0.99
    np.testing.assert_array_equal(model.labels_, model.predict(X))


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_takes_all_kinds(layout, metric):
    model = shoal.cluster(layout(X + 5), 8, metric=metric, sample_weight=np.arange(1, len(X) + 1), random_state=0)
    assert len(np.unique(model.labels_)) == 8


def test_says_what_it_did():
    summary = shoal.cluster(X, 8, random_state=0).summary_
    assert "\n" not in summary
    assert summary.startswith("8 clusters of 20,000 rows:")
    assert "good enough" in summary
    assert shoal.cluster(X[:500], 400, quality=0, random_state=0).summary_.endswith("left to gain.")


def test_says_when_time_was_up():
    rows = np.random.default_rng(0).normal(size=(200_000, 8)).astype(np.float32)
    shoal.cluster(rows[:3000], 50, random_state=0)  # compiles
    started = time.perf_counter()
    model = shoal.cluster(rows, 50, quality=0, time_budget=1e-3, random_state=0)
    assert "time was up" in model.summary_
    assert len(model.history_) == 1
    assert time.perf_counter() - started < 60


@pytest.mark.parametrize("quality", [-1, 1.0, "good"])
def test_bad_quality_is_named(quality):
    with pytest.raises(ValueError, match="quality"):
        shoal.cluster(X, 8, quality=quality)
