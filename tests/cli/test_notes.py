"""`run.json` from a stranger: nothing is connected to, nothing is opened but what was typed, and every field is checked."""

import json
import os
import stat
from pathlib import Path

import numpy as np
import pytest

from shoal.cli import engine, errors, signing
from shoal.cli import run as run_module
from shoal.cli.notes import RESULT, RUN, SETTINGS
from tests.cli.calling import refused, result, run

FIT = ("fit", "rows.npy", "-k", 3, "--quiet", "--threads", 1, "--no-report", "--method", "lloyd", "-o", "out")
RESUME = ("resume", "out", "--quiet")


@pytest.fixture(autouse=True)
def rows(tmp_path, monkeypatch):
    """Three groups in `rows.npy`, and centres in `start.npy`, where we stand."""
    monkeypatch.chdir(tmp_path)
    X = np.random.default_rng(0).normal(size=(300, 4)).astype(np.float32)
    X[:, 0] += 50 * (np.arange(300) % 3)
    np.save("rows.npy", X)
    np.save("start.npy", X[:3])


def stop_before_the_fit(capsys, monkeypatch, *options):
    """A run of this user that has everything before it."""
    with monkeypatch.context() as patch:
        patch.setattr(run_module, "_fit", lambda *_: (_ for _ in ()).throw(errors.Gone("the workers are gone")))
        refused(capsys, errors.NO_ROOM, *FIT, *options)
    return json.loads(Path("out/run.json").read_text())


def write(notes):
    Path("out/run.json").write_text(json.dumps(notes))


class TestClusters:
    def test_no_address_is_written_or_read(self, capsys, monkeypatch):
        """Dask unpickles what a scheduler answers: whoever names the address can run code."""
        connected = []
        monkeypatch.setattr(engine, "working", lambda settings: connected.append(settings) or pytest.fail("connected"))
        notes = stop_before_the_fit(capsys, monkeypatch)
        assert not {"scheduler", "workers"} & set(notes["settings"])
        hostile = {"engine": "dask", "scheduler": "tcp://127.0.0.1:1", "workers": 10**9}
        write({**notes, "settings": {**notes["settings"], **hostile}})
        message = refused(capsys, errors.USAGE, *RESUME, "--data", "rows.npy")
        assert "--engine dask with --scheduler ADDRESS" in message
        assert "127.0.0.1" not in message
        assert not connected

    def test_threads_go_on_with_what_a_cluster_began(self, capsys, monkeypatch):
        notes = stop_before_the_fit(capsys, monkeypatch)
        write({**notes, "settings": {**notes["settings"], "engine": "dask", "scheduler": "tcp://127.0.0.1:1"}})
        assert result(capsys, *RESUME, "--data", "rows.npy", "--engine", "threads")["rows"] == 300

    def test_a_cluster_has_to_be_named_whole(self, capsys, monkeypatch):
        stop_before_the_fit(capsys, monkeypatch)
        assert "needs --scheduler" in refused(capsys, errors.USAGE, *RESUME, "--engine", "dask")
        assert "without --engine" in refused(capsys, errors.USAGE, *RESUME, "--scheduler", "tcp://127.0.0.1:1")


class TestPaths:
    def test_of_this_user_need_not_be_typed(self, capsys, monkeypatch):
        stop_before_the_fit(capsys, monkeypatch, "--init", "start.npy")
        assert result(capsys, *RESUME)["rows"] == 300

    @pytest.mark.parametrize("change", [{"begun": "yesterday"}, {"signature": None}, {"signature": "0" * 64}, {"signature": 5}])
    def test_of_a_stranger_are_not_opened(self, capsys, monkeypatch, change):
        notes = stop_before_the_fit(capsys, monkeypatch, "--init", "start.npy")
        write({**notes, **change})
        monkeypatch.setattr(run_module, "open_data", lambda *_: pytest.fail("opened"))
        message = refused(capsys, errors.USAGE, *RESUME)
        assert "--data for " in message
        assert "--init for " in message
        assert "--init for" in refused(capsys, errors.USAGE, *RESUME, "--data", "rows.npy")

    def test_of_a_stranger_can_be_typed(self, capsys, monkeypatch):
        notes = stop_before_the_fit(capsys, monkeypatch, "--init", "start.npy")
        settings = {**notes["settings"], "init": "/dev/zero", "scratch": "/nowhere"}
        write({**notes, "data": "/dev/zero", "settings": settings})
        with monkeypatch.context() as patch:
            patch.setattr(run_module, "_fit", lambda *_: (_ for _ in ()).throw(errors.Gone("once more")))
            refused(capsys, errors.NO_ROOM, *RESUME, "--data", "rows.npy", "--init", "start.npy")
        notes = json.loads(Path("out/run.json").read_text())
        assert notes["data"] == str(Path("rows.npy").absolute())
        assert notes["settings"]["scratch"] is None
        assert result(capsys, *RESUME)["rows"] == 300  # they are this user's now

    def test_data_that_were_moved(self, capsys, monkeypatch):
        stop_before_the_fit(capsys, monkeypatch)
        Path("rows.npy").rename("elsewhere.npy")
        assert "rows.npy" in refused(capsys, errors.BAD_DATA, *RESUME)
        assert "has changed" in refused(capsys, errors.BAD_DATA, *RESUME, "--data", "start.npy")
        assert result(capsys, *RESUME, "--data", "elsewhere.npy")["rows"] == 300

    def test_a_start_that_was_none(self, capsys, monkeypatch):
        stop_before_the_fit(capsys, monkeypatch)
        assert "leave it out" in refused(capsys, errors.USAGE, *RESUME, "--init", "start.npy")


class TestKeys:
    def test_only_the_user_can_read_it(self, tmp_path, monkeypatch):
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
        signed = signing.signature({"a": 1})
        assert stat.S_IMODE((tmp_path / "shoal/key").stat().st_mode) == 0o600
        assert signing.is_own({"a": 1}, signed)
        assert not signing.is_own({"a": 2}, signed)
        assert [path.name for path in (tmp_path / "shoal").iterdir()] == ["key"]

    @pytest.mark.parametrize("spoil", [lambda key: key.chmod(0o644), lambda key: key.write_bytes(b"short"), Path.unlink])
    def test_others_sign_nothing(self, tmp_path, monkeypatch, spoil):
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
        signed = signing.signature({})
        spoil(tmp_path / "shoal/key")
        assert not signing.is_own({}, signed)

    def test_where_none_can_be_stored_data_are_typed(self, capsys, monkeypatch):
        monkeypatch.setenv("XDG_STATE_HOME", "/dev/null")
        assert stop_before_the_fit(capsys, monkeypatch)["signature"] is None
        assert "--data" in refused(capsys, errors.USAGE, *RESUME)
        assert result(capsys, *RESUME, "--data", "rows.npy")["rows"] == 300


@pytest.mark.parametrize("name", ["run.json", "checkpoint.npz", ".lock", "labels.npy", "model.npz"])
@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("outside")])
def test_what_is_no_file_is_not_waited_for(capsys, monkeypatch, name, make):
    stop_before_the_fit(capsys, monkeypatch)
    path = Path("out", name)
    path.unlink(missing_ok=True)
    make(path)
    for words in (RESUME, (*FIT, "--force")):
        assert f"{path}: is a link, a pipe" in refused(capsys, errors.USAGE, *words)
    assert not Path("out/outside").exists()


def test_links_in_the_place_of_temporary_files_are_not_followed(capsys, monkeypatch):
    """Whoever made the folder may guess which process will write there."""
    stop_before_the_fit(capsys, monkeypatch)
    Path("mine").write_text("mine")
    for name in ("run.json", "checkpoint.npz", "labels.npy"):
        for end in ("old.tmp", "0a.tmp", "tmp"):
            Path("out", f".{name}.{os.getpid()}.{end}").symlink_to(Path("mine").absolute())
    Path("out", f".shoal-new.{os.getpid()}.tmp").symlink_to(Path().absolute())
    result(capsys, *FIT, "--force")
    assert Path("mine").read_text() == "mine"
    assert sorted(path.name for path in Path().iterdir()) == ["mine", "out", "rows.npy", "start.npy"]


@pytest.mark.parametrize("words", [("fit", "pipe.npy", "-k", 3, "-o", "o"), ("inspect", "pipe.npy")])
def test_pipes_as_data(capsys, words):
    os.mkfifo("pipe.npy")
    assert "pipe" in refused(capsys, errors.BAD_DATA, *words)


@pytest.mark.parametrize("words", [("predict", "pipe.npz", "rows.npy", "-o", "l.npy"), ("export", "pipe.npz", "--to", "csv")])
def test_pipes_as_models(capsys, words):
    os.mkfifo("pipe.npz")
    assert "is a pipe" in refused(capsys, errors.BAD_DATA, *words)


def test_a_pipe_as_start(capsys):
    os.mkfifo("pipe.npy")
    assert "pipe" in refused(capsys, errors.BAD_DATA, *FIT, "--init", "pipe.npy")


VALUES = [
    *(None, True, 0, -1, 7, 10**18, 10**30, 10**400, 0.5, -0.5, 1e300, float("nan"), float("inf")),
    *("", "a", "3", "/dev/zero", "../../x", "tcp://127.0.0.1:1", "\x1b[31m\n", "\ud800", "\0", "x" * (1 << 23)),
    *([], {}, [[]], [[[[[[1]]]]]], ["a"], [0], [10**12], [None], {"a": 1}, {"": None}, {"n_threads": 10**9}, {"tol": [[[]]]}),
    *({"tol": 10**400}, {"init": "/dev/zero"}, {"init": [["a"]]}, {"callback": "print"}, {"n_clusters": 5}, {"max_iter": 1e18}),
]
FIELDS = [(name,) for name in (*RUN, "signature", "settings", "result", "unknown")]
FIELDS += [("settings", name) for name in (*SETTINGS, "unknown")] + [("result", name) for name in (*RESULT, "unknown")]


def _changed(notes, field, value):
    if len(field) == 1:
        return {**notes, field[0]: value}
    return {**notes, field[0]: {**notes[field[0]], field[1]: value}}


def _outside():
    return {path: (path.stat().st_size, path.stat().st_mtime_ns) for path in Path().rglob("*") if path.parts[0] != "out"}


class TestFuzz:
    """Every field of the notes is replaced by every value: one sentence and an exit code, or a run that does no harm."""

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
            notes = json.loads(Path("out/run.json").read_text())
        else:
            notes = stop_before_the_fit(capsys, monkeypatch, *start)
        monkeypatch.setattr(run_module, "_fit", _only_checked)
        before = _outside()
        for value in values:
            write(_changed(notes, field, value))
            code, out, err = run(capsys, *RESUME, "--data", "rows.npy", *start)
            assert code in (0, errors.USAGE, errors.BAD_DATA, errors.NO_ROOM, errors.REJECTED), (value, err)
            assert "Traceback" not in err
            assert sum(line.startswith("shoal: ") for line in err.splitlines()) == (code != 0), err
            assert not any(c in out + err for c in "\x1b\0")
            assert _outside() == before


def _only_checked(rows, chosen, watch, kept):
    """What a fit does before its first step, and no more: the values may ask for a long one."""
    run_module.estimator(chosen["method"], chosen["clusters"], chosen)
    raise errors.BadData("this far")
