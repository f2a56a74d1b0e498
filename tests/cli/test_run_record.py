"""Run records written by others: no connection is made, stored paths are not opened, and every field is validated."""

import json
import os
import stat
from pathlib import Path

import numpy as np
import pytest

from shoal.cli import engine, errors, signing
from shoal.cli import run as run_module
from shoal.cli.run_record import RECORD_CHECKS, RESULT_CHECKS, SETTINGS_CHECKS
from tests.cli.invoke import refused, result, run

FIT = ("fit", "rows.npy", "-k", 3, "--quiet", "--threads", 1, "--no-report", "--method", "lloyd", "-o", "out")
RESUME = ("resume", "out", "--quiet")


@pytest.fixture(autouse=True)
def rows(tmp_path, monkeypatch):
    """Three groups in `rows.npy` and centroids in `start.npy`, in the working directory."""
    monkeypatch.chdir(tmp_path)
    X = np.random.default_rng(0).normal(size=(300, 4)).astype(np.float32)
    X[:, 0] += 50 * (np.arange(300) % 3)
    np.save("rows.npy", X)
    np.save("start.npy", X[:3])


def stop_before_fit(capsys, monkeypatch, *options):
    """Start a run that stops before its first step. Return its record."""
    with monkeypatch.context() as patch:
        patch.setattr(
            run_module, "_fit_model", lambda *_: (_ for _ in ()).throw(errors.WorkersLostError("the workers are gone"))
        )
        refused(capsys, errors.NO_ROOM, *FIT, *options)
    return json.loads(Path("out/run.json").read_text())


def write(record):
    Path("out/run.json").write_text(json.dumps(record))


class TestDaskCluster:
    def test_address_is_never_stored_or_used(self, capsys, monkeypatch):
        """Dask unpickles the replies of a scheduler, so an address from an untrusted file could run code."""
        connected = []
        monkeypatch.setattr(engine, "running_engine", lambda settings: connected.append(settings) or pytest.fail("connected"))
        record = stop_before_fit(capsys, monkeypatch)
        assert not {"scheduler", "workers"} & set(record["settings"])
        hostile = {"engine": "dask", "scheduler": "tcp://127.0.0.1:1", "workers": 10**9}
        write({**record, "settings": {**record["settings"], **hostile}})
        message = refused(capsys, errors.USAGE, *RESUME, "--data", "rows.npy")
        assert "--engine dask with --scheduler ADDRESS" in message
        assert "127.0.0.1" not in message
        assert not connected

    def test_resume_on_threads(self, capsys, monkeypatch):
        record = stop_before_fit(capsys, monkeypatch)
        write({**record, "settings": {**record["settings"], "engine": "dask", "scheduler": "tcp://127.0.0.1:1"}})
        assert result(capsys, *RESUME, "--data", "rows.npy", "--engine", "threads")["rows"] == 300

    def test_incomplete_engine_options(self, capsys, monkeypatch):
        stop_before_fit(capsys, monkeypatch)
        assert "needs either --scheduler ADDRESS or --workers COUNT" in refused(
            capsys, errors.USAGE, *RESUME, "--engine", "dask"
        )
        assert "without --engine" in refused(capsys, errors.USAGE, *RESUME, "--scheduler", "tcp://127.0.0.1:1")


class TestStoredPaths:
    def test_signed_paths_are_used(self, capsys, monkeypatch):
        stop_before_fit(capsys, monkeypatch, "--init", "start.npy")
        assert result(capsys, *RESUME)["rows"] == 300

    @pytest.mark.parametrize(
        "change", [{"started": "yesterday"}, {"signature": None}, {"signature": "0" * 64}, {"signature": 5}]
    )
    def test_unsigned_paths_are_not_opened(self, capsys, monkeypatch, change):
        record = stop_before_fit(capsys, monkeypatch, "--init", "start.npy")
        write({**record, **change})
        monkeypatch.setattr(run_module, "open_data", lambda *_: pytest.fail("opened"))
        message = refused(capsys, errors.USAGE, *RESUME)
        assert "--data for " in message
        assert "--init for " in message
        assert "--init for" in refused(capsys, errors.USAGE, *RESUME, "--data", "rows.npy")

    def test_unsigned_paths_can_be_replaced(self, capsys, monkeypatch):
        record = stop_before_fit(capsys, monkeypatch, "--init", "start.npy")
        settings = {**record["settings"], "init": "/dev/zero", "scratch": "/nowhere"}
        write({**record, "data": "/dev/zero", "settings": settings})
        with monkeypatch.context() as patch:
            patch.setattr(run_module, "_fit_model", lambda *_: (_ for _ in ()).throw(errors.WorkersLostError("once more")))
            refused(capsys, errors.NO_ROOM, *RESUME, "--data", "rows.npy", "--init", "start.npy")
        record = json.loads(Path("out/run.json").read_text())
        assert record["data"] == str(Path("rows.npy").absolute())
        assert record["settings"]["scratch"] is None
        assert result(capsys, *RESUME)["rows"] == 300  # the record is signed by this user now

    def test_moved_data(self, capsys, monkeypatch):
        stop_before_fit(capsys, monkeypatch)
        Path("rows.npy").rename("elsewhere.npy")
        assert "rows.npy" in refused(capsys, errors.BAD_DATA, *RESUME)
        assert "has changed" in refused(capsys, errors.BAD_DATA, *RESUME, "--data", "start.npy")
        assert result(capsys, *RESUME, "--data", "elsewhere.npy")["rows"] == 300

    def test_init_of_run_without_init_file(self, capsys, monkeypatch):
        stop_before_fit(capsys, monkeypatch)
        assert "remove it" in refused(capsys, errors.USAGE, *RESUME, "--init", "start.npy")


class TestSigningKey:
    def test_is_private_and_verifies(self, tmp_path, monkeypatch):
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
        signed = signing.signature({"a": 1})
        assert stat.S_IMODE((tmp_path / "shoal/key").stat().st_mode) == 0o600
        assert signing.is_own({"a": 1}, signed)
        assert not signing.is_own({"a": 2}, signed)
        assert [path.name for path in (tmp_path / "shoal").iterdir()] == ["key"]

    @pytest.mark.parametrize("spoil", [lambda key: key.chmod(0o644), lambda key: key.write_bytes(b"short"), Path.unlink])
    def test_invalid_key_verifies_nothing(self, tmp_path, monkeypatch, spoil):
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
        signed = signing.signature({})
        spoil(tmp_path / "shoal/key")
        assert not signing.is_own({}, signed)

    def test_without_key_paths_must_be_given(self, capsys, monkeypatch):
        monkeypatch.setenv("XDG_STATE_HOME", "/dev/null")
        assert stop_before_fit(capsys, monkeypatch)["signature"] is None
        assert "--data" in refused(capsys, errors.USAGE, *RESUME)
        assert result(capsys, *RESUME, "--data", "rows.npy")["rows"] == 300


@pytest.mark.parametrize("name", ["run.json", "checkpoint.npz", ".lock", "labels.npy", "model.npz"])
@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("outside")])
def test_special_files_are_rejected(capsys, monkeypatch, name, make):
    stop_before_fit(capsys, monkeypatch)
    path = Path("out", name)
    path.unlink(missing_ok=True)
    make(path)
    for words in (RESUME, (*FIT, "--force")):
        assert f"{path}: is a link, a pipe" in refused(capsys, errors.USAGE, *words)
    assert not Path("out/outside").exists()


def test_links_at_temporary_names_are_not_followed(capsys, monkeypatch):
    """Whoever created the folder may guess the id of the process that writes there."""
    stop_before_fit(capsys, monkeypatch)
    Path("mine").write_text("mine")
    for name in ("run.json", "checkpoint.npz", "labels.npy"):
        for end in ("old.tmp", "0a.tmp", "tmp"):
            Path("out", f".{name}.{os.getpid()}.{end}").symlink_to(Path("mine").absolute())
    Path("out", f".shoal-new.{os.getpid()}.tmp").symlink_to(Path().absolute())
    result(capsys, *FIT, "--force")
    assert Path("mine").read_text() == "mine"
    assert sorted(path.name for path in Path().iterdir()) == ["mine", "out", "rows.npy", "start.npy"]


@pytest.mark.parametrize("words", [("fit", "pipe.npy", "-k", 3, "-o", "o"), ("inspect", "pipe.npy")])
def test_pipe_as_data(capsys, words):
    os.mkfifo("pipe.npy")
    assert "pipe" in refused(capsys, errors.BAD_DATA, *words)


@pytest.mark.parametrize("words", [("predict", "pipe.npz", "rows.npy", "-o", "l.npy"), ("export", "pipe.npz", "--to", "csv")])
def test_pipe_as_model(capsys, words):
    os.mkfifo("pipe.npz")
    assert "is a pipe" in refused(capsys, errors.BAD_DATA, *words)


def test_pipe_as_init(capsys):
    os.mkfifo("pipe.npy")
    assert "pipe" in refused(capsys, errors.BAD_DATA, *FIT, "--init", "pipe.npy")


VALUES = [
    *(None, True, 0, -1, 7, 10**18, 10**30, 10**400, 0.5, -0.5, 1e300, float("nan"), float("inf")),
    *("", "a", "3", "/dev/zero", "../../x", "tcp://127.0.0.1:1", "\x1b[31m\n", "\ud800", "\0", "x" * (1 << 23)),
    *([], {}, [[]], [[[[[[1]]]]]], ["a"], [0], [10**12], [None], {"a": 1}, {"": None}, {"n_threads": 10**9}, {"tol": [[[]]]}),
    *({"tol": 10**400}, {"init": "/dev/zero"}, {"init": [["a"]]}, {"callback": "print"}, {"n_clusters": 5}, {"max_iter": 1e18}),
]
FIELDS = [(name,) for name in (*RECORD_CHECKS, "signature", "settings", "result", "unknown")]
FIELDS += [("settings", name) for name in (*SETTINGS_CHECKS, "unknown")] + [
    ("result", name) for name in (*RESULT_CHECKS, "unknown")
]


def _changed(record, field, value):
    if len(field) == 1:
        return {**record, field[0]: value}
    return {**record, field[0]: {**record[field[0]], field[1]: value}}


def _outside():
    return {path: (path.stat().st_size, path.stat().st_mtime_ns) for path in Path().rglob("*") if path.parts[0] != "out"}


class TestFuzz:
    """Replace each field of the record by each value: the command succeeds or fails with one line and changes no other file."""

    @pytest.mark.parametrize("field", FIELDS, ids=".".join)
    def test_some_values(self, capsys, monkeypatch, field):
        self.try_values(capsys, monkeypatch, field, VALUES[FIELDS.index(field) % 5 :: 5])

    @pytest.mark.slow
    @pytest.mark.parametrize("field", FIELDS, ids=".".join)
    def test_every_value(self, capsys, monkeypatch, field):
        self.try_values(capsys, monkeypatch, field, VALUES)

    def try_values(self, capsys, monkeypatch, field, values):
        start = ("--init", "start.npy")
        if field[0] == "result":
            result(capsys, *FIT, *start)
            record = json.loads(Path("out/run.json").read_text())
        else:
            record = stop_before_fit(capsys, monkeypatch, *start)
        monkeypatch.setattr(run_module, "_fit_model", _validate_only)
        before = _outside()
        for value in values:
            write(_changed(record, field, value))
            code, out, err = run(capsys, *RESUME, "--data", "rows.npy", *start)
            assert code in (0, errors.USAGE, errors.BAD_DATA, errors.NO_ROOM, errors.REJECTED), (value, err)
            assert "Traceback" not in err
            assert sum(line.startswith("shoal: ") for line in err.splitlines()) == (code != 0), err
            assert not any(c in out + err for c in "\x1b\0")
            assert _outside() == before


def _validate_only(rows, settings, progress, checkpoint):
    """Validate the settings as a fit does, without running it: the values may request a long fit."""
    run_module.make_estimator(settings)
    raise errors.InvalidDataError("this far")
