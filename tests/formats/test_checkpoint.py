"""Interrupted fits are resumed to the same bits as uninterrupted ones."""

import contextlib
import gc
import json
import os
import signal
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest
from scipy import sparse

import shoal
from shoal import Checkpoint
from shoal.exceptions import InvalidModelError
from shoal.fit import partition, restarts
from shoal.fit.checkpoint import CHECKPOINT_STORE, FitProgress, open_session
from shoal.fit.solver import Solver
from shoal.formats import archive, checkpoint
from tests.formats.crashes import MODELS, X, digest
from tests.formats.writers import TIMES
from tests.test_contract import ESTIMATORS

CHANGED = X.copy()
CHANGED[1] += 1  # a row that a sampled fingerprint does not include


class Cut(Exception):
    """Simulates the end of the process."""


def cut_after(steps):
    """Return a callback that ends the fit with an error after so many steps."""
    seen = []

    def callback(record):
        seen.append(record)
        if len(seen) > steps:
            raise Cut

    return callback


def cut(model, rows, path, steps, **options):
    with pytest.raises(Cut), Checkpoint(path, every=0):
        model.set_params(callback=cut_after(steps)).fit(rows, **options)
    assert path.exists()
    return model.set_params(callback=None)


def cut_at_write(model, rows, path, times=None):
    """Run a fit that ends with an error once its state has been written so many times, also between stages.

    Return the names of the sections at each write.
    """
    store = Checkpoint(path, every=0)
    written = []

    def offer(progress, offer=store.offer):
        offer(progress)
        written.append(list(progress.sections))
        if len(written) == times:
            raise Cut

    store.offer = offer
    with contextlib.nullcontext() if times is None else pytest.raises(Cut), store:
        model.fit(rows)
    return written


@pytest.fixture(autouse=True)
def after_every_step(monkeypatch):
    monkeypatch.setattr(checkpoint, "SHARE", 1e9)


def test_every_estimator_is_covered():
    assert set(MODELS) >= {cls.__name__ for cls in ESTIMATORS} - {
        "Standardized"
    }  # it uses the checkpoint of its inner estimator


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("name", MODELS)
def test_resumed_fits_give_the_same_bits(name, layout, tmp_path):
    rows, path = layout(X[:1500]), tmp_path / "checkpoint.npz"
    expected = MODELS[name]().fit(rows)
    if len(expected.history_) == 1:
        pytest.skip("one step: see test_fits_resume_from_any_stage")
    for steps in (1, len(expected.history_) // 2, len(expected.history_) - 1):
        model = cut(MODELS[name](), rows, path, max(steps, 1))
        with Checkpoint(path):
            assert digest(model.fit(rows)) == digest(expected)
        assert not path.exists()


STAGES = {
    "CompressedKMeans": {"clusters of the sketch", "the hyperplanes", "the code", "starts"},
    "LandmarkSpectral": {"landmarks", "eigenvectors", "clusters"},
    "NystromSpectral": {"eigenvectors", "clusters"},
    **{f"{name}Spectral": {"degrees", "eigenvectors", "clusters"} for name in ("MiniBatch", "Power", "Exact")},
}


@pytest.mark.parametrize("name", STAGES)
def test_fits_resume_from_any_stage(name, tmp_path):
    make = lambda: MODELS[name]().set_params(**{"learn": True} if name == "CompressedKMeans" else {})  # noqa: E731
    rows, path = X[:1000], tmp_path / "checkpoint.npz"
    expected, written = digest(make().fit(rows)), cut_at_write(make(), rows, path)
    assert {stage.removesuffix(", so far") for pages in written for stage in pages} >= STAGES[name]
    for times in {next(i for i, pages in enumerate(written, 1) if stage in pages) for stage in STAGES[name]}:
        cut_at_write(make(), rows, path, times)
        with Checkpoint(path):
            assert digest(make().fit(rows)) == expected


def test_inner_fits_of_callbacks_are_not_saved(tmp_path):
    """An example is an `init` that fits another model."""
    inner = lambda X, k, random_state: shoal.KMeans(k, random_state=0).fit(X).cluster_centers_  # noqa: E731
    make = lambda: shoal.KMeans(12, init=inner, n_init=2, tol=0, random_state=0)  # noqa: E731
    model, expected = cut(make(), X, tmp_path / "x", 2), digest(make().fit(X))
    with Checkpoint(tmp_path / "x"):
        assert digest(model.fit(X)) == expected


@pytest.mark.parametrize(
    "options", [{"algorithm": a} for a in ("lloyd", "elkan", "yinyang", "projected")] + [{"metric": "cosine"}]
)
def test_bounds_are_not_saved(options, tmp_path):
    make = lambda: shoal.KMeans(12, init=X[:12], tol=0, **options)  # noqa: E731
    model = cut(make(), X, tmp_path / "x", 5)
    with Checkpoint(tmp_path / "x"):
        model.fit(X)
    assert digest(model) == digest(make().fit(X))


def test_with_weights(tmp_path):
    weights = np.random.default_rng(0).integers(0, 3, len(X)).astype(float)
    model = cut(shoal.NestedKMeans(5, batch_size=100, tol=0, random_state=0), X, tmp_path / "x", 6, sample_weight=weights)
    expected = digest(shoal.NestedKMeans(5, batch_size=100, tol=0, random_state=0).fit(X, sample_weight=weights))
    with Checkpoint(tmp_path / "x"):
        assert digest(model.fit(X, sample_weight=weights)) == expected


def test_from_a_file(tmp_path):
    np.save(tmp_path / "x.npy", X)
    rows = shoal.open_rows(tmp_path / "x.npy")
    model = cut(MODELS["NestedKMeans"](), rows, tmp_path / "x", 6)
    with Checkpoint(tmp_path / "x"):
        model.fit(X)
    assert digest(model) == digest(MODELS["NestedKMeans"]().fit(X))


def test_from_a_packed_file(tmp_path, monkeypatch):
    """A compressed file is identified by its bytes, because reading sampled rows would decompress it."""
    monkeypatch.setattr("shoal.formats.streamed.Streamed._copied", lambda self: pytest.fail("it was unpacked"))
    for name, rows in (("x.npz", X), ("y.npz", X[::-1])):
        np.savez_compressed(tmp_path / name, rows)
    make = lambda: shoal.KMeans(4, init=X[:4])  # noqa: E731

    def begin(name):
        rows = shoal.open_rows(tmp_path / name)
        with Checkpoint(tmp_path / "x", every=0) as store, open_session(make(), rows, None, 0, store):
            store.offer(FitProgress(0, {}))
            store._about = None  # otherwise a completed fit removes the file

    begin("x.npz")
    begin("x.npz")
    with pytest.raises(InvalidModelError, match="the content of X"):
        begin("y.npz")


@pytest.mark.parametrize("random_state", [None, np.random.RandomState(3)])
def test_resumed_fits_use_the_saved_seed(random_state, tmp_path):
    settings = {"max_iter": 50, "tol": 0, "max_no_improvement": None, "random_state": random_state}
    model = cut(shoal.MiniBatchKMeans(5, **settings), X, tmp_path / "x", 20)
    copies = [tmp_path / "a", tmp_path / "b"]
    found = []
    for path in copies:
        path.write_bytes((tmp_path / "x").read_bytes())
        with Checkpoint(path):
            found.append(digest(model.fit(X)))
    assert found[0] == found[1]


KILLED = ("KMeans", "NestedKMeans", "OnlineKMeans", "CompressedKMeans", "MiniBatchSpectral")  # `bench faults` covers all


def test_killed_at_random_moments():
    if not hasattr(signal, "SIGKILL"):
        pytest.skip("needs fork and kill")
    kills = 2 if TIMES == 1 else 4 * TIMES
    command = [sys.executable, "-m", "tests.formats.crashes", str(kills), *KILLED]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300 * TIMES)
    assert done.returncode == 0, done.stderr
    runs = [json.loads(line) for line in done.stdout.splitlines()]
    assert [result["estimator"] for result in runs] == list(KILLED)
    assert [result for result in runs if not result["same"]] == []
    assert sum(result["resumed"] for result in runs) > 0
    assert not [name for result in runs for name in result["left"]]


def test_resume_twice_around_the_end_of_a_start(tmp_path):
    """The first process ends after the last step of a start was saved, the second one during the next start."""
    make = lambda: shoal.KMeans(12, n_init=3, init="random", max_iter=4, tol=0, random_state=1)  # noqa: E731
    for times in (5, 2):
        cut_at_write(make(), X, tmp_path / "x", times)
    with Checkpoint(tmp_path / "x"):
        model = make().fit(X)
    assert digest(model) == digest(make().fit(X))


def test_temporary_files_of_other_processes_are_not_removed(tmp_path):
    mine, theirs = tmp_path / f".x.{os.getpid()}.12ab.tmp", tmp_path / f".x.{2**22 + 1}.12ab.tmp"
    for path in (mine, theirs, tmp_path / ".y.1.12ab.tmp", tmp_path / ".x.tmp"):
        path.touch()
    with Checkpoint(tmp_path / "x"):
        shoal.KMeans(4, init=X[:4]).fit(X)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([mine.name, ".x.tmp", ".y.1.12ab.tmp"])


def test_time_budget_includes_earlier_runs(tmp_path):
    model = cut(shoal.KMeans(12, init=X[:12], tol=0), X, tmp_path / "x", 5)
    with Checkpoint(tmp_path / "x"):
        seconds = [record["seconds"] for record in model.fit(X).history_]
    assert seconds == sorted(seconds)


class TestRejected:
    @pytest.fixture
    def path(self, tmp_path):
        cut(shoal.KMeans(4, init=X[:4]), X, tmp_path / "x", 2)
        return tmp_path / "x"

    @pytest.mark.parametrize(
        ("model", "rows", "says"),
        [
            (shoal.KMeans(4, init=X[1:5]), X, "init"),
            (shoal.KMeans(4, init=X[:4], tol=0), X, "tol"),
            (shoal.KMeans(4, init=X[:4], algorithm="lloyd"), X, "algorithm"),
            (shoal.OnlineKMeans(4, init=X[:4]), X, "estimator|then|max_iter|algorithm"),
            (shoal.KMeans(4, init=X[:4]), X[:-1], "the shape of X"),
            (shoal.KMeans(4, init=X[:4]), X.astype(float), "the type of X"),
            (shoal.KMeans(4, init=X[:4]), X[::-1], "the content of X"),
            (shoal.KMeans(4, init=X[:4]), CHANGED, "the variance of X"),
        ],
    )
    def test_checkpoint_of_another_fit(self, path, model, rows, says):
        with pytest.raises(InvalidModelError, match=f"x: belongs to another fit, where .*({says})"), Checkpoint(path):
            model.fit(rows)
        assert path.exists()

    def test_checkpoint_with_other_weights(self, path):
        with pytest.raises(InvalidModelError, match="sample_weight"), Checkpoint(path):
            shoal.KMeans(4, init=X[:4]).fit(X, sample_weight=np.ones(len(X)))

    def test_parameters_that_may_change(self, path):
        with Checkpoint(path):
            shoal.KMeans(4, init=X[:4], max_iter=7, n_threads=1, time_budget=100.0, callback=lambda _: None).fit(X)

    def test_changed_input_file(self, path):
        data = path.read_bytes()
        for at in np.random.default_rng(0).integers(0, len(data), 100 * TIMES).tolist():
            changed = bytearray(data)
            changed[at] ^= 1
            path.write_bytes(changed)
            with pytest.raises(InvalidModelError), Checkpoint(path):
                shoal.KMeans(4, init=X[:4]).fit(X)

    def test_model_as_checkpoint(self, tmp_path):
        shoal.save(shoal.KMeans(4), tmp_path / "x")
        with (
            pytest.raises(InvalidModelError, match="'shoal model' file, not a 'shoal checkpoint' file"),
            Checkpoint(tmp_path / "x"),
        ):
            shoal.KMeans(4).fit(X)

    def test_two_fits_with_one_checkpoint(self, tmp_path):
        model = shoal.KMeans(4, random_state=0)
        with Checkpoint(tmp_path / "x"):
            model.fit(X)
            with pytest.raises(ValueError, match="A Checkpoint is for one fit"):
                model.fit(X)

    @pytest.mark.parametrize("every", [-1, "1", None, True, float("nan")])
    def test_invalid_every(self, every):
        with pytest.raises(ValueError, match="every="):
            Checkpoint("x", every=every)


def test_stop_request(tmp_path):
    """The step is completed, the state is written, and the model is unchanged."""
    store = Checkpoint(tmp_path / "x", every=1000)

    def callback(record):
        if record["step"] == 3:
            store.stop()

    model = shoal.KMeans(12, init=X[:12], tol=0, callback=callback)
    with pytest.raises(checkpoint.FitInterrupted), store:
        model.fit(X)
    assert not hasattr(model, "labels_")
    with Checkpoint(tmp_path / "x"):
        model.set_params(callback=None).fit(X)
    assert digest(model) == digest(shoal.KMeans(12, init=X[:12], tol=0).fit(X))


def test_writing_interval(tmp_path, monkeypatch):
    """Writes keep to the interval, and take at most a given fraction of the time."""
    clock, written = [0.0], []
    monkeypatch.setattr(checkpoint, "SHARE", 0.01)
    monkeypatch.setattr(checkpoint.time, "monotonic", lambda: clock[0])

    def write(*_):
        written.append(clock[0])
        clock[0] += 2.0

    monkeypatch.setattr(checkpoint, "write", write)
    store = Checkpoint(tmp_path / "x", every=60)
    progress = FitProgress(0, {})
    for _ in range(1000):
        store.offer(progress)
        clock[0] += 1.0
    assert written == [0.0, 202.0, 404.0, 606.0, 808.0]


def test_checkpoint_exists_before_the_first_step(tmp_path):
    path = tmp_path / "x"

    def interrupt(record):
        raise KeyboardInterrupt

    model = shoal.KMeans(12, tol=0, callback=interrupt)
    with pytest.raises(KeyboardInterrupt), Checkpoint(path, every=1000):
        model.fit(X)
    assert path.exists()
    with Checkpoint(path):
        model.set_params(callback=None).fit(X)
    assert not path.exists()


HOSTILE = {
    "of no cluster": lambda a: np.full_like(a, 2**31 - 1) if a.dtype == np.int32 else a,
    "below": lambda a: np.full_like(a, -(10**6)) if a.dtype == np.int32 else a,
    "too few rows": lambda a: a[: len(a) // 2] if a.dtype == np.int32 else a,
    "too few centroids": lambda a: a[:2] if a.ndim == 2 else a,
    "NaN": lambda a: np.full_like(a, np.nan) if a.dtype.kind == "f" and a.ndim == 2 else a,
}


@pytest.mark.parametrize("name", ["KMeans", "OnlineKMeans", "VarianceReducedKMeans", "CompressedKMeans"])
def test_invalid_states_are_rejected(name, tmp_path):
    """The file has valid hashes and belongs to the fit, but kernels would access memory out of bounds."""
    path = tmp_path / "x"
    model = cut(getattr(shoal, name)(12, random_state=0), X, path, 2)
    content, arrays = archive.read(path, "checkpoint")
    for change in HOSTILE.values():
        changed = {key: np.ascontiguousarray(change(array)) for key, array in arrays.items()}
        if all(np.array_equal(changed[key], arrays[key]) for key in arrays):
            continue  # such as labels, which not all states have
        archive.write(path, "checkpoint", content, changed)
        with pytest.raises(InvalidModelError, match="made of"), Checkpoint(path):
            model.fit(X)


def test_a_fit_that_fails_at_once_leaves_no_checkpoint(tmp_path):
    """After the rows are corrected, another fit may use the same file."""
    wrong = X.copy()
    wrong[3, 0] = np.nan
    for rows, fails in ((wrong, pytest.raises(ValueError, match="NaN")), (X, contextlib.nullcontext())):
        with fails, Checkpoint(tmp_path / "x"):
            shoal.KMeans(12, random_state=0).fit(rows)
        assert not (tmp_path / "x").exists()


def test_fits_in_other_threads_are_not_saved(tmp_path):
    def other():
        shoal.KMeans(4, init=X[:4]).fit(X)

    with Checkpoint(tmp_path / "x", every=0):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert not (tmp_path / "x").exists()
    shoal.KMeans(4, init=X[:4]).fit(X)
    assert CHECKPOINT_STORE.get() is None


def test_a_full_disk_does_not_damage_the_checkpoint(tmp_path, monkeypatch):
    path = tmp_path / "x"
    model = cut(shoal.KMeans(12, init=X[:12], tol=0), X, path, 3)
    before = path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("shoal.formats.archive.os.fsync", full)
        with pytest.raises(OSError, match="No space left"), Checkpoint(path, every=0):
            model.fit(X)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("resumed", [False, True])
def test_saved_states_are_not_held_in_memory(resumed, tmp_path, monkeypatch):
    """States of wide rows are large: memory plans include one of them."""
    path, states, alive = tmp_path / "checkpoint.npz", [], []
    make = lambda: shoal.KMeans(12, algorithm="lloyd", tol=1e-3, random_state=0)  # noqa: E731
    if resumed:
        cut(make(), X, path, 2)

    def without_bounds(state, without_bounds=partition.without_bounds):
        states.append(weakref.ref(state.centers))
        return without_bounds(state)

    def is_valid_progress(saved, *rest, check=restarts.is_valid_progress):
        states.append(weakref.ref(saved.run.state.centers))
        return check(saved, *rest)

    def finalize(self, result, *rest, finalize=Solver.finalize):
        gc.collect()
        kept = [result.state.centers, *self.rows.pool._arrays]  # the pool has few arrays, however many steps there are
        alive.extend(C() for C in states if C() is not None and not any(C() is other for other in kept))
        return finalize(self, result, *rest)

    monkeypatch.setattr(partition, "without_bounds", without_bounds)
    monkeypatch.setattr(restarts, "is_valid_progress", is_valid_progress)
    monkeypatch.setattr(Solver, "finalize", finalize)
    with Checkpoint(path, every=0):
        model = make().fit(X)
    assert model.stop_reason_ == "converged"  # the last step of such a fit is not saved
    assert len(states) > 1
    assert not alive
