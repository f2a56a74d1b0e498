"""Runs: data sets and substitutes, seeds and time limits, trajectories of fits."""

import numpy as np
import pytest

from shoal import KMeans, MiniBatchKMeans, MiniBatchSpectral, OnlineKMeans, PowerSpectral
from shoal.papers import curves, made, run, show
from shoal.papers.claims import HOLDS, UNTRIED, Check, Claim
from shoal.papers.compressed import experiments as compressed
from shoal.papers.convergence import experiments as convergence
from shoal.papers.data import ENTRIES, InvalidDataSetError, Shelf
from shoal.papers.nested import experiments as nested
from shoal.papers.run import Effort, Experiment, Finding, Paper, Run, run_papers
from shoal.papers.spectral import experiments as spectral
from shoal.papers.variance import experiments as variance
from tests.strategies import blobs

X, _ = blobs(300, 4, 5)
NOTHING = Shelf(files=False)


@pytest.mark.parametrize("name", ENTRIES)
def test_every_data_set_has_a_substitute(name):
    found = NOTHING.load(name, 100)
    assert found.X.shape[0] == 100
    assert found.y is None or len(found.y) == 100
    if name not in ("iris", "pendigits"):  # always available
        assert "is replaced by" in found.notes[0]


def test_files_take_precedence_over_substitutes(tmp_path, monkeypatch):
    rows = np.arange(4500).reshape(500, 9)
    np.savez(tmp_path / "shuttle.npz", X=rows, y=np.arange(500) % 2)
    monkeypatch.setenv("SHOAL_DATA", str(tmp_path))
    for shelf in (Shelf(), Shelf(tmp_path)):
        found = shelf.load("shuttle")
        assert (found.n, found.notes) == (500, ())
        assert (found.X.min(), found.X.max()) == (-1, 1)
        assert (found.own, shelf.load("shuttle", 4).own) == (True, False)
    found = Shelf(tmp_path).load("mnist")
    assert "is replaced by" in found.notes[0]
    assert not found.own
    running = Run(run.QUICK, Shelf(tmp_path))
    running.experiment = "Table 1"
    running.load("shuttle", 450)
    assert running.notes == ["Table 1: 450 of 500 rows of shuttle."]


def test_substitutes_are_marked():
    """A claim that names a data set is not tested by a substitute."""

    def work(running):
        running.load("shuttle", 500)
        figure = show.chart("key", "Figure 2: shuttle", [], "x", "y", "")
        return Finding([figure], {"shuttle: NMI": 0.5 + 1e-17, "shuttle: less than on mnist": 1e-17})

    named, any_set = (Claim("key", "", "", "", (Check(name),)) for name in ("shuttle: NMI", "NMI"))
    paper = Paper("key", "title", "", "", (named, any_set), (Experiment("one", (3.0, 9.0), work),))
    (report,) = run_papers([paper], run.QUICK, NOTHING, lambda *_: None)
    assert report.shown[0].what.title == "Figure 2: shuttle (replaced)"
    assert [v.word for v in report.verdicts] == [UNTRIED, HOLDS]
    assert report.verdicts[1].measured == {"shuttle (replaced): NMI": 0.5}


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ({"X": np.zeros((500, 9))}, "y is not a file in the archive"),
        ({"X": np.zeros((500, 8)), "y": np.zeros(500)}, "9 columns"),
        ({"X": np.zeros((5, 9)), "y": np.zeros(5)}, "400 rows or more"),
        ({"X": np.zeros(500), "y": np.zeros(500)}, "shape"),
        ({"X": np.full((500, 9), np.nan), "y": np.zeros(500)}, "NaN or infinity"),
        ({"X": np.zeros((500, 9)), "y": np.zeros(499)}, "499 classes for 500 rows"),
        ({"X": np.full((500, 9), "a"), "y": np.zeros(500)}, "could not convert"),
        ({"X": np.array([[object()] * 9] * 500), "y": np.zeros(500)}, "allow_pickle"),
    ],
)
def test_invalid_files_are_rejected(parts, why, tmp_path):
    np.savez(tmp_path / "shuttle.npz", **parts)
    with pytest.raises(InvalidDataSetError, match=r"shuttle.npz cannot be read .*: download it again \(UCI") as error:
        Shelf(tmp_path).load("shuttle")
    assert why in str(error.value)


def test_subsets_are_reproducible():
    np.testing.assert_array_equal(Shelf(files=False).load("sift", 50).X, Shelf(files=False).load("sift", 50).X)


def test_deformed_images_differ_slightly():
    pictures = np.random.default_rng(0).random((30, 64)).astype(np.float32)
    out = made.deformed(pictures, 90)
    assert out.shape == (90, 64)
    assert out.min() >= 0
    assert out.max() <= pictures.max()
    assert (out[:30] != out[30:60]).any(axis=1).all()
    assert np.abs(out[:30] - pictures).mean() < pictures.std()


def test_no_seed_is_started_after_the_time_limit():
    now = iter(np.arange(100.0))
    work = Run(Effort("quick", None, 20, 4.5, lambda: next(now)), NOTHING)
    work.experiment = "Figure 1"
    seeds = list(work.seeds(10))
    assert seeds == [0, 1, 2, 3]
    assert work.notes == ["Figure 1: 4 of 10 seeds, due to the time limit."]
    now = iter(np.arange(100.0))
    parts = Run(Effort("quick", None, 20, 9.0, lambda: next(now)), NOTHING)
    assert list(parts.seeds(10, parts=2)) == [0, 1, 2, 3]  # half of the time
    assert list(Run(Effort("quick", None, 2, 1e9), NOTHING).seeds(4, every=True)) == [0, 1, 2, 3]
    assert list(Run(Effort("full", None, None, None), NOTHING).seeds(3)) == [0, 1, 2]
    assert list(Run(Effort("quick", None, 2, 1e9), NOTHING).seeds(3)) == [0, 1]


def test_progress_and_remaining_time():
    def work(running):
        return Finding([], {"a": float(sum(running.seeds(4)))})

    paper = Paper("key", "title", "", "", (), (Experiment("one", (3.0, 9.0), work), Experiment("two", (1.0, 9.0), work)))
    updates = []
    reports = list(run_papers([paper, paper], run.QUICK, NOTHING, lambda *update: updates.append(update)))
    assert [report.notes for report in reports] == [["Experiments not yet run: 1."], []] * 2
    assert list(dict.fromkeys(name for name, _, _ in updates)) == ["key: one", "key: two"]
    shares = [share for _, share, _ in updates]
    assert shares == sorted(shares)
    assert (shares[0], updates[0][2]) == (0.0, 8.0)
    assert all(0 <= left <= 8 for _, _, left in updates)


@pytest.mark.parametrize("model", [KMeans, OnlineKMeans])
def test_a_trajectory_matches_shorter_fits(model):
    options = {"n_clusters": 5, "init": curves.first_rows(X, 5, 1), "random_state": 0, "tol": 0.0}
    trajectory = curves.record_trajectory(model(max_iter=4, **options), X, every=True)
    assert list(trajectory.steps) == list(range(1, len(trajectory.centers) + 1))
    for t, C in zip(trajectory.steps, trajectory.centers, strict=True):
        np.testing.assert_allclose(C, model(max_iter=t, **options).fit(X).cluster_centers_, rtol=1e-12)


@pytest.mark.parametrize("model", [MiniBatchSpectral, PowerSpectral])
def test_longer_fits_resume_shorter_ones(model):
    rows, common = NOTHING.load("pendigits", 400), {"n_clusters": 3, "sigma": 200.0, "tol": 0.0, "random_state": 0}
    more = {"batch_size": 50, "init": "random"} if model is MiniBatchSpectral else {}
    further, steps = spectral.Further(), []
    for most in (1, 2, 5):
        recompute, before = model(max_iter=most, **common, **more), len(steps)
        watched = model(max_iter=most, **common, **more, callback=lambda record: steps.append(record["step"]))
        uninterrupted, resumed = spectral.fit(recompute, rows), spectral.fit(watched, rows, further)
        assert resumed._replace(seconds=0) == uninterrupted._replace(seconds=0)
        np.testing.assert_array_equal(watched.labels_, recompute.labels_)
        assert steps[before:] == list(range(before + 1, most + 1))


@pytest.mark.filterwarnings("ignore:time_budget=")  # budgets are measured, and may be too short on a busy machine
def test_centroids_are_not_kept_between_seeds():
    """A record of text data takes 20 MB: all seeds together would exceed the memory."""
    split = nested.Split(Run(run.TINY, NOTHING), "news")
    for curves_of in nested.ARMS.values():
        for curve in curves_of(split, 0).values():
            assert curve.seconds.shape == curve.distances.shape == curve.energies.shape == (len(curve.seconds),)
            assert (np.diff(curve.seconds) > 0).all()
            assert (np.diff(curve.distances) > 0).all()


def test_speed_is_measured_in_seconds_and_in_distances():
    start = variance.make_start(X, 5, 0)
    found = variance.one_seed(start, variance.LETTER)
    assert set(found) == set(variance.METHODS)
    for curve in found.values():
        assert (curve.seconds[0], curve.distances[0]) == (0, 0)
        assert curve.losses[0] == pytest.approx(found["batch KM"].losses[0])
    assert list(np.diff(found["VRKM++"].distances)) == [2 * len(X) * 5] * (len(found["VRKM++"].distances) - 1)
    batch = found["batch KM"]
    assert variance.speed_up({"batch KM": batch, "same": batch}, "same", "distances", 10) == pytest.approx(1)
    worse = batch._replace(losses=batch.losses + 1)
    assert variance.speed_up({"batch KM": batch, "worse": worse}, "worse", "distances", 100) == 0


def test_ratios_of_mean_curves():
    def curve(costs, energies):
        return nested.Curve(np.array(costs), np.array(costs), np.array(energies))

    runs = [{"nmbatch": curve([1.0, 2.0], [4.0, 2.0]), "lloyd": curve([5.0, 10.0, 20.0], [4.0, 3.0, 2.0])}] * 3
    assert nested.mean_curve_ratio(runs, "lloyd", 2.0, "seconds") == 10
    assert nested.mean_curve_ratio(runs, "lloyd", 1.0, "seconds") == 0  # nested batches do not reach it
    never = [{**runs[0], "lloyd": curve([5.0, 10.0], [4.0, 3.0])}] * 3
    assert nested.mean_curve_ratio(never, "lloyd", 2.0, "seconds") == 5  # a lower bound
    assert nested.bootstrapped(runs, lambda some: float(len(some))) == [3.0, 3.0, 3.0]
    assert nested.bootstrapped(runs[:2], lambda some: float(len(some))) == [2.0]


def test_long_fits_are_recorded_at_growing_intervals():
    model = MiniBatchKMeans(5, batch_size=50, max_iter=300, max_no_improvement=None, tol=0.0, random_state=0)
    trajectory = curves.record_trajectory(model, X)
    assert trajectory.steps[-1] == 300
    assert len(trajectory.steps) < 150
    assert trajectory.energies(X)[-1] == pytest.approx(model.inertia_ / len(X))


def test_values_at_times_and_times_of_values():
    seconds, values = np.array([1.0, 2.0, 4.0]), np.array([9.0, 5.0, 3.0])
    np.testing.assert_array_equal(curves.at(np.array([0.5, 1.0, 3.0, 9.0]), seconds, values), [np.nan, 9, 5, 3])
    assert curves.soonest(seconds, values, 5.0) == 2
    assert curves.soonest(seconds, values, 4.0) == 3
    assert curves.soonest(seconds, values, 10.0) == 1
    assert curves.soonest(seconds, values, 1.0) == np.inf


def test_the_hessian_contains_cluster_sizes():
    C = curves.first_rows(X, 3, 0) + 0.1
    gradient, H = convergence.derivatives(X, C)
    labels = ((X[:, None] - C) ** 2).sum(axis=2).argmin(axis=1)
    N = np.bincount(labels, minlength=3)
    np.testing.assert_allclose(H, np.diag(np.repeat(N, 4)), atol=1e-3)
    sums = np.array([(C[j] - X[labels == j]).sum(axis=0) for j in range(3)])
    np.testing.assert_allclose(gradient, sums.ravel(), rtol=1e-5, atol=1e-5)


def test_round_from_which_a_curve_is_constant():
    assert compressed._settled(np.array([9.0, 5.0, 3.1, 3.0, 3.0])) == 3
    assert compressed._settled(np.array([9.0, 5.0, 9.0, 5.0, 5.0])) == 4
    assert compressed._settled(np.ones(4)) == np.inf  # nothing has fallen


def test_compilation_is_not_timed(monkeypatch):
    """The first run on a machine has as many trials as later ones."""
    now, trial = [0.0], convergence.trial_of_letter

    def slow_at_first(*args):
        now[0] += 0.1 if now[0] else 15.0
        return trial(*args)

    monkeypatch.setattr(convergence, "trial_of_letter", slow_at_first)
    work = Run(Effort("tiny", None, 20, 20.0, lambda: now[0]), NOTHING)
    convergence.race(work, "letter")
    assert work.notes == []
