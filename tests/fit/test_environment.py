"""Settings of a fit that are handed down: observers, and fits inside other fits."""

import numpy as np

import shoal
from shoal.execution.memory_limit import MEMORY_LIMIT, MemoryPlan
from shoal.fit.checkpoint import CHECKPOINT_STORE
from shoal.fit.environment import FitEnvironment
from tests.strategies import blobs

X = blobs(300, 4, 3)[0]


def test_observers_see_every_step():
    seen = []
    environment = FitEnvironment.current(None, X)._replace(
        observers=(lambda record, state: seen.append((record["step"], state.centers.copy())),)
    )
    model = shoal.KMeans(5, init=X[:5], tol=0.0)._fit(X, None, environment)
    assert [step for step, _ in seen] == [record["step"] for record in model.history_]
    expected = shoal.KMeans(5, init=X[:5], tol=0.0).fit(X)
    np.testing.assert_array_equal(model.cluster_centers_, expected.cluster_centers_)
    for step, centers in seen:
        shorter = shoal.KMeans(5, init=X[:5], tol=0.0, max_iter=step).fit(X)
        np.testing.assert_allclose(model._frame.out_of(centers, centers.dtype), shorter.cluster_centers_)


def test_an_observer_can_stop_the_fit():
    environment = FitEnvironment.current(None, X)._replace(observers=(lambda record, state: record["step"] == 2,))
    model = shoal.KMeans(5, init=X[:5], tol=0.0)._fit(X, None, environment)
    assert (model.n_iter_, model.stop_reason_) == (2, "callback")


def test_an_inner_fit_has_the_settings_of_the_outer_one():
    plan = MemoryPlan(2, 1e9, 4e8)
    outer = FitEnvironment(0.0, None, 1e9, observers=(print,))
    inner = outer.inner(plan, None)
    assert (inner.engine, inner.memory_limit, inner.outer_plan, inner.observers) == (None, 1e9, plan, ())
    assert inner.started > 0.0
    assert plan.spare(1.0) == 3e8
    assert MemoryPlan(2).spare(1.0) == 1.0


def test_fits_in_a_callback_are_not_checkpointed(tmp_path):
    """A checkpoint is for one fit; a fit that the user starts meanwhile does not touch it, but has the memory limit."""
    found = []

    def callback(record):
        found.append((CHECKPOINT_STORE.get(), MEMORY_LIMIT.get()))
        shoal.KMeans(2, init=X[:2], max_iter=1).fit(X)

    with shoal.MemoryLimit("2GB"), shoal.Checkpoint(tmp_path / "x", every=0):
        shoal.KMeans(3, init=X[:3], callback=callback).fit(X)
    assert set(found) == {(None, 2e9)}
