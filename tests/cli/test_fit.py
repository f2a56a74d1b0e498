"""fit, predict, inspect and resume: the files they write, and when they refuse."""

import csv
import itertools
import json
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse

import shoal
from bench import failing
from shoal.cli import errors, methods, stopping
from shoal.cli import run as run_module
from shoal.cli.methods import METHODS, warm
from shoal.data import cancellation
from shoal.data.source import FileSource
from shoal.data.sources import find_source
from shoal.fit import loop as driver
from tests.cli.calling import refused, result, run

pytestmark = pytest.mark.usefixtures("rows")


@pytest.fixture
def rows(tmp_path, monkeypatch):
    """Three far groups in `rows.npy`, where we stand."""
    monkeypatch.chdir(tmp_path)
    X = np.random.default_rng(0).normal(size=(300, 4)).astype(np.float32)
    X[:, 0] += 50 * (np.arange(300) % 3)
    np.save("rows.npy", X)
    return X


FIT = ("fit", "rows.npy", "-k", 3, "--quiet", "--threads", 1)


def test_fit_writes_what_it_says(capsys, rows, tmp_path):
    told = result(capsys, *FIT, "-o", "out", "--seed", 7)
    model = shoal.load("out/model.npz")
    labels = np.load("out/labels.npy", allow_pickle=False)
    assert sorted(p.name for p in (tmp_path / "out").iterdir() if p.name != ".lock") == sorted(
        ["model.npz", "labels.npy", "history.csv", "report.html", "run.json"]
    )
    assert told["energy"] == model.inertia_
    assert (told["rows"], told["columns"], told["clusters"], told["seed"]) == (300, 4, 3, 7)
    np.testing.assert_array_equal(labels, model.predict(rows))
    history = list(csv.DictReader(Path("out/history.csv").read_text().splitlines()))
    assert [int(record["step"]) for record in history] == list(range(1, told["steps"] + 1))
    notes = json.loads(Path("out/run.json").read_text())
    assert (notes["status"], notes["result"]) == ("done", told)
    assert "Content-Security-Policy" in Path("out/report.html").read_text()


def test_fit_is_the_estimator(capsys, rows):
    result(capsys, *FIT, "-o", "out", "--method", "lloyd", "--init", "random", "--set", "n_init=2", "--no-report")
    model = shoal.KMeans(3, algorithm="lloyd", init="random", n_init=2, random_state=0).fit(rows)
    np.testing.assert_array_equal(shoal.load("out/model.npz").cluster_centers_, model.cluster_centers_)
    result(capsys, *FIT, "-o", "again", "--method", "exact", "--init", "out/model.npz", "--no-report")
    assert shoal.load("again/model.npz").n_iter_ == 1


@pytest.mark.parametrize("method", METHODS)
def test_kernels_are_compiled_before_time_counts(method, rows):
    """By rows that are made up: no row of a packed file is read for it."""

    class Unread(FileSource):
        shape, dtype, take, materialize = (10**9, 4), np.dtype(np.float32), None, None

        def read(self, start, stop):
            assert start == stop
            return rows[start:stop]

    warm(method, Unread(), {"clusters": 20, "threads": 1})


def test_kernels_of_sparse_rows(rows):
    some = find_source(sparse.csr_array(rows))
    warm("lloyd", some, {"clusters": 20, "metric": "cosine", "threads": 1})
    with pytest.raises(errors.BadData, match="needs dense rows"):
        warm("projected", some, {"clusters": 20, "threads": 1})


def test_a_limit_on_time_asks_nothing_of_a_method_that_has_no_starts(capsys):
    assert result(capsys, *FIT, "-o", "out", "--no-report", "--method", "spectral-power", "--time", "20s")["steps"] > 0


def test_people_read_lines(capsys):
    code, out, err = run(capsys, *FIT, "-o", "out", "--no-report")
    assert (code, err) == (0, "")
    assert "300 x 4" in out
    code, out, err = run(capsys, "fit", "rows.npy", "-k", 3, "-o", "two", "--no-report", "--progress", "json")
    steps = [json.loads(line) for line in err.splitlines()]
    assert any("rows_per_second" in step for step in steps)
    assert run(capsys, *FIT[:4], "-o", "three", "--no-report", "--progress", "bar", "--time", "1m")[0] == 0
    assert "\x1b" not in out + err


def test_nothing_is_overwritten_unasked(capsys, tmp_path):
    result(capsys, *FIT, "-o", "out", "--no-report")
    before = {p.name: p.read_bytes() for p in (tmp_path / "out").iterdir()}
    assert "--force" in refused(capsys, errors.USAGE, *FIT, "-o", "out")
    assert before == {p.name: p.read_bytes() for p in (tmp_path / "out").iterdir()}
    (tmp_path / "out" / "mine.txt").write_text("mine")
    result(capsys, *FIT, "-o", "out", "--no-report", "--force", "--seed", 3)
    assert (tmp_path / "out" / "mine.txt").read_text() == "mine"
    assert shoal.load("out/model.npz").random_state == 3
    assert "is a file" in refused(capsys, errors.USAGE, *FIT, "-o", "rows.npy", "--force")
    before = Path("out/labels.npy").read_bytes()
    for words in (["fit", "out/labels.npy", "-k", 1, "-o", "out"], ["predict", "out/model.npz", "rows.npy", "-o", "rows.npy"]):
        assert "name another" in refused(capsys, errors.USAGE, *words, "--force")
    assert Path("out/labels.npy").read_bytes() == before
    (tmp_path / "l.npy").write_text("mine")
    assert "--force" in refused(capsys, errors.USAGE, "predict", "out/model.npz", "rows.npy", "-o", "l.npy")
    assert (tmp_path / "l.npy").read_text() == "mine"


def test_ids_make_labels_a_table(capsys):
    pq = pytest.importorskip("pyarrow.parquet")
    with open("rows.csv", "w") as file:
        file.write("name,a,b\n" + "".join(f"=r{i},{i % 2 * 100},{i}\n" for i in range(20)))
    told = result(capsys, "fit", "rows.csv", "-k", 2, "-q", "-o", "out", "--id-column", "name", "--columns", "a")
    table = pq.read_table(told["files"]["labels"])
    assert table.column("id").to_pylist() == [f"=r{i}" for i in range(20)]
    assert len(set(table.column("label").to_pylist()[::2])) == 1
    rows = ("rows.csv", "-q", "--columns", "a", "--id-column", "name")
    again = result(capsys, "predict", "out/model.npz", *rows, "-o", "l.parquet")
    assert sorted(again["sizes"]) == [10, 10]
    assert pq.read_table("l.parquet").equals(table)
    assert ".parquet" in refused(capsys, errors.USAGE, "predict", "out/model.npz", *rows, "-o", "l.npy")


@pytest.mark.parametrize("chunks", [None, (100, 4)])
def test_big_endian_ids(capsys, rows, chunks):
    h5py, pq = pytest.importorskip("h5py"), pytest.importorskip("pyarrow.parquet")
    with h5py.File("rows.h5", "w") as file:
        file.create_dataset("X", data=rows.astype(">f4"), chunks=chunks)
    np.save("big.npy", rows.astype(">f4"))
    for name in ("rows.h5", "big.npy"):
        result(capsys, "fit", name, "-k", 2, "-q", "-o", "out", "--id-column", 1, "--no-report", "--force")
        np.testing.assert_array_equal(pq.read_table("out/labels.parquet").column("id").to_numpy(), rows[:, 1])


def test_ids_that_parquet_can_not_hold(capsys, rows):
    pa, feather = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.feather")
    spans = pa.array([(1, 2, 3)] * 300, pa.month_day_nano_interval())
    feather.write_feather(pa.table({"span": spans, "a": rows[:, 0], "b": rows[:, 1]}), "rows.arrow")
    told = refused(capsys, errors.BAD_DATA, "fit", "rows.arrow", "-k", 2, "-q", "-o", "out", "--id-column", "span")
    assert "--id-column" in told


HOSTILE = "[/] =cmd a\nb\x1b[31m<i>\u202e"


def test_names_steer_nothing(capsys, rows):
    """Of files, columns and rows: on the terminal, in tables and on the page."""
    pq, pa = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    columns = {f"={HOSTILE}{j}": rows[:, j] for j in range(3)}
    data, out = f"{HOSTILE}.parquet".replace("/", "b"), f"out{HOSTILE}".replace("/", "b")
    pq.write_table(pa.table({**columns, "name": [f"@{HOSTILE}{i}" for i in range(300)]}), data)
    code, told, err = run(capsys, "fit", data, "-k", 2, "--id-column", "name", "-o", out)
    assert code == 0, err
    for words in (["inspect", data, "--id-column", "name"], ["export", f"{out}/model.npz", "--to", "csv"], ["inspect", data]):
        more = run(capsys, *words)
        told, err = told + more[1], err + more[2]
    assert "[/]" in told
    assert "[b]" in err
    assert not any(c in told + err for c in "\x1b\u202e")
    assert all(len(line) > 3 for line in (told + err).splitlines())  # none was broken
    page = Path(out, "report.html").read_text()
    assert not any(bad in page for bad in ("\x1b", "\u202e", "<i>", HOSTILE))
    head = Path(out, "model.csv").read_text().splitlines()[0]
    assert head.startswith("cluster,'=[/] =cmd a b")
    table = pq.read_table(f"{out}/labels.parquet")
    assert table.column("id")[0].as_py() == f"@{HOSTILE}0"  # as it is: nobody runs what is there


def test_standardized_rows_are_labelled_as_they_were_fitted(capsys, rows):
    X = rows * np.float32([1, 1e6, 1e-6, 1]) + np.float32([0, 5e6, 0, -3])
    np.save("uneven.npy", X)
    told = result(capsys, "fit", "uneven.npy", "-k", 3, "-q", "-o", "out", "--standardize", "--method", "exact")
    model = shoal.Standardized(shoal.KMeans(3, random_state=0)).fit(X)
    assert told["energy"] == model.inertia_
    np.testing.assert_array_equal(shoal.load("out/model.npz").cluster_centers_, model.cluster_centers_)
    assert told["warnings"] == []
    result(capsys, "predict", "out/model.npz", "uneven.npy", "-q", "-o", "l.npy")
    np.testing.assert_array_equal(np.load("l.npy"), np.load("out/labels.npy"))


@pytest.mark.parametrize(
    ("code", "word", "arguments"),
    [
        (errors.USAGE, "--time", ["--time", "soon"]),
        (errors.USAGE, "--time", ["--time", "0s"]),
        (errors.USAGE, "--memory", ["--memory", "2 stones"]),
        (errors.USAGE, "--method", ["--method", "magic"]),
        (errors.USAGE, "--set speed", ["--set", "speed=9"]),
        (errors.USAGE, "--set", ["--set", "speed"]),
        (errors.USAGE, "tol", ["--set", "tol=[[["]),
        (errors.USAGE, "tol", ["--set", "tol=" + "[" * 100_000]),
        (errors.USAGE, "--set", ["--set", "tol=[[[[1]]]]"]),
        (errors.USAGE, "--set", ["--set", "tol=1" + "0" * 400]),
        (errors.USAGE, "--set", ["--set", 'tol={"a": 1}']),
        (errors.USAGE, "--threads", ["--threads", "1000000000"]),
        (errors.USAGE, "--columns", ["--columns", "0:2000000000"]),
        (errors.USAGE, "--metric", ["--metric", "cosine", "--method", "mixture"]),
        (errors.USAGE, "--init", ["--init", "nowhere"]),
        (errors.USAGE, "--image", ["--image", "2by2"]),
        (errors.USAGE, "--image 3x3", ["--image", "3x3"]),
        (errors.USAGE, "--standardize", ["--standardize", "--init", "rows.npy"]),
        (errors.BAD_DATA, "column 9", ["--text-column", "9", "--columns", "0"]),
        (errors.USAGE, "301 clusters", ["-k", "301"]),
        (errors.BAD_DATA, "column 9", ["--columns", "0,9"]),
        (errors.NO_ROOM, "takes about", ["--memory", "10MB"]),
    ],
)
def test_what_fit_refuses(capsys, code, word, arguments):
    assert word in refused(capsys, code, *FIT, "-o", "out", *arguments)
    assert result(capsys, *FIT, "-o", "out", "--no-report", "--method", "lloyd")["rows"] == 300  # nothing is in the way


@pytest.mark.parametrize(("content", "word"), [(b"", "empty"), (b"not numbers", "bad.npy"), (None, "NaN")])
def test_bad_files(capsys, rows, content, word):
    rows[17, 2] = np.nan
    np.save("bad.npy", rows)
    if content is not None:
        Path("bad.npy").write_bytes(content)
    assert word in refused(capsys, errors.BAD_DATA, "fit", "bad.npy", "-k", 3, "-q", "-o", "out")
    assert not Path("out/run.json").exists()


def test_a_changed_model_is_rejected(capsys):
    result(capsys, *FIT, "-o", "out", "--no-report")
    data = bytearray(Path("out/model.npz").read_bytes())
    data[len(data) // 2] ^= 1
    Path("out/model.npz").write_bytes(data)
    assert "model.npz" in refused(capsys, errors.REJECTED, "predict", "out/model.npz", "rows.npy", "-q", "-o", "l.npy")
    assert "model.npz" in refused(capsys, errors.REJECTED, "inspect", "out/model.npz")


def test_inspect(capsys, rows):
    rows[:2, 0] = np.nan, np.inf
    np.save("bad.npy", rows)
    told = result(capsys, "inspect", "bad.npy")
    assert (told["rows"], told["columns"], told["nan"], told["infinite"]) == (300, 4, 1, 1)
    told = result(capsys, "inspect", "rows.npy", "-k", 5, "--memory", "10MB", "--threads", 1)
    assert told["fit"]["fits"] is False
    assert told["fit"]["seconds"] > 0
    assert told["fit"]["bytes"] == pytest.approx(sum(told["fit"]["parts"].values()))
    assert run(capsys, "inspect", "rows.npy", "-k", 5)[0] == 0
    result(capsys, *FIT, "-o", "out", "--no-report")
    assert result(capsys, "inspect", "out/model.npz")["clusters"] == 3


def test_resume_of_a_fit_that_is_done(capsys):
    told = result(capsys, *FIT, "-o", "out", "--no-report")
    assert result(capsys, "resume", "out") == told


def test_resume_from_elsewhere(capsys, rows, tmp_path, monkeypatch):
    """Paths are kept as they were meant."""
    np.save("start.npy", rows[:3])
    told = result(capsys, *FIT, "-o", "out", "--method", "exact", "--init", "start.npy", "--no-report")
    notes = json.loads(Path("out/run.json").read_text())
    Path("out/run.json").write_text(json.dumps({**notes, "status": "running"}))
    Path("out/.report.html.999999999.0a.tmp").write_text("half of it")
    (tmp_path / "deeper").mkdir()
    monkeypatch.chdir(tmp_path / "deeper")
    typed = ("--data", "../rows.npy", "--init", "../start.npy")
    assert result(capsys, "resume", "../out", "-q", *typed)["energy"] == told["energy"]
    assert not list(Path("../out").glob(".*.tmp"))
    assert "run.json" in refused(capsys, errors.USAGE, "resume", ".")
    assert not list(Path().iterdir())  # nothing is put where no run is


def test_pictures_and_texts(capsys):
    with open("rows.csv", "w") as file:
        file.write("a,b,c,d,note\n" + "".join(f"{i % 2 * 9},{i},1,2,row number {i}\n" for i in range(40)))
    told = result(capsys, "fit", "rows.csv", "-k", 2, "-q", "-o", "out", "--text-column", "note", "--image", "2x2")
    page = Path(told["files"]["report"]).read_text()
    assert "row number " in page
    assert "data:image/png" in page


def test_resume_refuses(capsys, rows):
    result(capsys, *FIT, "-o", "out", "--no-report")
    notes = json.loads(Path("out/run.json").read_text())
    Path("out/run.json").write_text(json.dumps({**notes, "status": "running"}))
    np.save("rows.npy", rows + 1)
    assert "has changed" in refused(capsys, errors.BAD_DATA, "resume", "out", "-q", "--data", "rows.npy")
    Path("out/run.json").write_text("{")
    assert "run.json" in refused(capsys, errors.REJECTED, "resume", "out", "-q")
    Path("out/run.json").write_text(json.dumps({**notes, "settings": {"method": "magic"}}))
    assert "run.json" in refused(capsys, errors.REJECTED, "resume", "out", "-q")
    Path("out/run.json").unlink()
    assert "run.json" in refused(capsys, errors.USAGE, "resume", "out", "-q")


def test_a_full_disk_is_told(capsys, monkeypatch):
    monkeypatch.setattr("os.fsync", lambda fd: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    assert "No space" in refused(capsys, errors.NO_ROOM, *FIT, "-o", "out")


def test_one_process_at_a_time(capsys, tmp_path):
    from shoal.cli.folder import locked

    (tmp_path / "out").mkdir()
    with locked(tmp_path / "out"):
        assert "another process" in refused(capsys, errors.USAGE, *FIT, "-o", "out")


def test_handlers_are_given_back():
    import signal

    before = signal.getsignal(signal.SIGTERM)
    with stopping.stopping():
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before


class TestOldResults:
    """A fit that fails leaves what an earlier one has found."""

    @pytest.fixture
    def before(self, capsys):
        result(capsys, *FIT, "-o", "out")
        return {path.name: path.read_bytes() for path in Path("out").iterdir()}

    @pytest.mark.parametrize(
        ("code", "arguments"),
        [
            (errors.USAGE, ["--set", 'tol="x"']),
            (errors.USAGE, ["--set", "n_init=0"]),
            (errors.USAGE, ["--set", "callback=1"]),
            (errors.USAGE, ["--init", "out/model.npz", "--method", "exact"]),
            (errors.BAD_DATA, ["--init", "rows.npy"]),
            (errors.USAGE, ["--engine", "dask", "--scheduler", "nowhere:at:all"]),
        ],
    )
    def test_bad_settings(self, capsys, before, code, arguments):
        refused(capsys, code, *FIT, "-o", "out", "--force", *arguments)
        assert {path.name: path.read_bytes() for path in Path("out").iterdir()} == before

    def test_bad_rows(self, capsys, before, rows):
        rows[200, 1] = np.nan
        np.save("nan.npy", rows)
        refused(capsys, errors.BAD_DATA, "fit", "nan.npy", "-k", 3, "-q", "-o", "out", "--force")
        assert {path.name: path.read_bytes() for path in Path("out").iterdir()} == before

    def test_no_room_for_new_ones(self, capsys, before, monkeypatch):
        monkeypatch.setattr("shoal.cli.run._fit", lambda *_: (_ for _ in ()).throw(MemoryError))
        refused(capsys, errors.NO_ROOM, *FIT, "-o", "out", "--force")
        assert {path.name: path.read_bytes() for path in Path("out").iterdir()} == before

    @pytest.mark.parametrize("fails", ["os.fsync", "os.replace", "shoal.cli.run._fit"])
    def test_that_could_be_gone_on_with(self, capsys, monkeypatch, fails):
        """A fit that was stopped is not lost to one that can't begin."""
        Path("out").mkdir()
        old = {"run.json": b"the notes of it", "checkpoint.npz": b"its state"}
        for name, data in old.items():
            Path("out", name).write_bytes(data)
        monkeypatch.setattr(fails, lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        refused(capsys, errors.NO_ROOM, *FIT, "-o", "out", "--force")
        assert {path.name: path.read_bytes() for path in Path("out").iterdir() if path.name != ".lock"} == old

    @pytest.mark.parametrize("fails", ["write_records", "write_notes", "put"])
    def test_that_new_ones_can_not_be_written_beside(self, capsys, before, monkeypatch, fails):
        """All new files are written before any old one is replaced."""
        real, calls = getattr(run_module, fails), []

        def full(*arguments):
            calls.append(arguments)
            if len(calls) > (fails == "write_notes"):  # those of the beginning
                raise errors.NoRoom("full")
            return real(*arguments)

        monkeypatch.setattr(run_module, fails, full)
        refused(capsys, errors.NO_ROOM, *FIT, "-o", "out", "--force", "--seed", 5)
        assert {path.name: path.read_bytes() for path in Path("out").iterdir()} == before

    def test_that_can_not_be_put_aside(self, capsys, before, monkeypatch):
        def half(path, mode):
            Path(path).write_bytes(b"{")
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(run_module, "open", half, raising=False)
        refused(capsys, errors.NO_ROOM, *FIT, "-o", "out", "--force")
        assert {path.name: path.read_bytes() for path in Path("out").iterdir()} == before

    @pytest.mark.slow
    @pytest.mark.parametrize("number", failing.ERRORS)
    def test_whatever_write_fails(self, tmp_path, number):
        """Each call that writes fails once: the earlier run is whole, or its notes say that it is none."""
        tried, harmed = failing.fits(tmp_path, number, quick=False)
        assert tried > 50
        assert not harmed

    def test_are_replaced_by_new_ones(self, capsys, before):
        result(capsys, *FIT, "-o", "out", "--force", "--no-report", "--seed", 5)
        assert not Path("out/report.html").exists()
        assert Path("out/run.json").read_bytes() != before["run.json"]


def test_data_that_break_later_leave_the_checkpoint(capsys, monkeypatch):
    """A file that is cut while it is read may be mended, and the fit can go on."""

    def cut_short(*arguments, **named):
        driver.drive(*arguments, **named)
        raise ValueError("rows.npy: ends early")

    monkeypatch.setattr("shoal.fit.base.drive", cut_short)
    monkeypatch.setattr("shoal.cli.run.EVERY", 0.0)
    monkeypatch.setattr("shoal.formats.checkpoint.SHARE", 1e9)
    refused(capsys, errors.BAD_DATA, *FIT, "-o", "out", "--method", "lloyd", "--init", "random")
    assert Path("out/checkpoint.npz").exists()


def test_folders_of_data_are_left_alone(capsys, rows):
    Path("dd").mkdir()
    np.save("dd/a.npy", rows)
    np.save("dd/labels.npy", rows)
    result(capsys, *FIT, "-o", "out", "--no-report")
    for out in ("dd", "dd/out"):
        assert "outside" in refused(capsys, errors.USAGE, "fit", "dd", "-k", 3, "-q", "-o", out, "--force")
    assert "outside" in refused(capsys, errors.USAGE, "predict", "out/model.npz", "dd", "-q", "-o", "dd/b.npy")
    assert sorted(path.name for path in Path("dd").iterdir()) == ["a.npy", "labels.npy"]


def test_a_model_too_large_to_save_leaves_the_labels(capsys, monkeypatch):
    monkeypatch.setattr("shoal.formats.values.MOST", 100)
    told = result(capsys, *FIT, "-o", "out", "--method", "spectral-exact", "--no-report")
    assert "model" not in told["files"]
    assert any("no model was saved" in warning for warning in told["warnings"])
    assert len(np.load("out/labels.npy")) == 300


def test_folders_of_sparse_rows_have_the_columns_of_the_model(capsys):
    """Those that are empty at the end of every file, too."""
    for name, lines in (("rows", ["1 1:1 4:9", "1 1:2 4:9", "1 2:5", "1 2:6"]), ("others", ["1 1:2", "1 2:7"])):
        Path(name).mkdir()
        for i in range(2):
            Path(name, f"{i}.svm").write_text("\n".join(lines))
    result(capsys, "fit", "rows", "-k", 2, "-q", "-o", "out", "--no-report")
    assert result(capsys, "predict", "out/model.npz", "others", "-q", "-o", "l.npy", "--one-based")["rows"] == 4


def test_names_in_digits_are_not_numbers_of_columns(capsys, rows):
    """A model that knows columns 1, 2 and 3 by name does not take columns 1 to 3 of a file that has no names."""
    lines = [",".join(map(str, row)) for row in rows.tolist()]
    Path("rows.csv").write_text("1,2,3\n" + "\n".join(line.partition(",")[2] for line in lines))
    Path("other.csv").write_text("\n".join(lines))
    result(capsys, "fit", "rows.csv", "-k", 3, "-q", "-o", "out", "--no-report", "--header")
    with warnings.catch_warnings(action="ignore"):  # that these have no names
        words = ("predict", "out/model.npz", "other.csv", "-q", "-o", "l.npy", "--no-header")
        assert "4 features" in refused(capsys, errors.BAD_DATA, *words)


@pytest.mark.parametrize("kind", ["csv", "model"])
def test_centres_to_start_from_have_the_columns_of_the_rows(capsys, rows, kind):
    for name, columns, some in (("rows", "abcd", rows), ("start", "dbac", rows[:3]), ("other", "abce", rows[:3])):
        values = [[row["abcd".find(c)] for c in columns] for row in some.tolist()]
        Path(f"{name}.csv").write_text("\n".join([",".join(columns), *(",".join(map(str, row)) for row in values)]))
    np.save("start.npy", rows[:3])
    starts = {"same": "start.npy", "start": "start.csv", "other": "other.csv"}
    if kind == "model":
        for name in ("start", "other"):
            starts[name] = f"{name}/model.npz"
            result(capsys, "fit", f"{name}.csv", "-k", 3, "-q", "-o", name, "--no-report", "--method", "lloyd")
        np.save("start.npy", shoal.load("start/model.npz").cluster_centers_[:, [2, 1, 3, 0]])
    fit = ("fit", "rows.csv", "-k", 3, "-q", "--no-report", "--method", "lloyd", "--set", "max_iter=1", "--init")
    energies = [result(capsys, *fit, starts[name], "-o", f"{name}-out")["energy"] for name in ("same", "start")]
    assert energies[0] == energies[1]
    assert "a, b, c, e" in refused(capsys, errors.BAD_DATA, *fit, starts["other"], "-o", "out")


def test_columns_by_the_names_that_the_model_knows(capsys, rows):
    with open("rows.csv", "w") as file:
        file.write("7,b,c,d\n" + "\n".join(",".join(map(str, row)) for row in rows.tolist()))
    with open("other.csv", "w") as file:
        file.write("note,d,7,c,b\n" + "\n".join(f"x,{r[3]},{r[0]},{r[2]},{r[1]}" for r in rows.tolist()))
    result(capsys, "fit", "rows.csv", "-k", 3, "-q", "-o", "out", "--no-report", "--header")
    result(capsys, "predict", "out/model.npz", "other.csv", "-q", "-o", "l.npy", "--header")
    np.testing.assert_array_equal(np.load("l.npy"), np.load("out/labels.npy"))
    with warnings.catch_warnings(action="ignore"):  # that these have no names
        result(capsys, "predict", "out/model.npz", "rows.npy", "-q", "-o", "l.npy", "--force")
    assert result(capsys, "inspect", "rows.csv", "--columns", "7,1", "--header")["names"] == ["7", "b"]
    assert result(capsys, "inspect", "rows.csv", "--no-header", "--limit-rows", 1, "--columns", "0")["rows"] == 1


@pytest.mark.parametrize("change", [{"clusters": "3"}, {"extra": None}, {"init": 5}, {"columns": "a"}, {"text_column": 7.5}])
def test_notes_that_no_run_has_left(capsys, change):
    result(capsys, *FIT, "-o", "out", "--no-report")
    notes = json.loads(Path("out/run.json").read_text())
    notes = {**notes, "status": "running", "settings": {**notes["settings"], **change}}
    Path("out/run.json").write_text(json.dumps(notes))
    assert "run.json" in refused(capsys, errors.REJECTED, "resume", "out", "-q")


def test_notes_of_a_result_that_is_none(capsys):
    result(capsys, *FIT, "-o", "out", "--no-report")
    notes = json.loads(Path("out/run.json").read_text())
    for text in (json.dumps({**notes, "result": {}}), "[" * 100_000):
        Path("out/run.json").write_text(text)
        assert "run.json" in refused(capsys, errors.REJECTED, "resume", "out", "-q")


def test_nobody_listens(capsys, monkeypatch):
    """A closed stderr is no reason to end a fit."""

    def broken(text, err=False):
        if err:
            raise BrokenPipeError

    with monkeypatch.context() as patch:
        patch.setattr("shoal.cli.errors.click.echo", broken)
        code, _, _ = run(capsys, "fit", "rows.npy", "-k", 3, "-o", "out", "--no-report", "--progress", "json")
    assert code == 0
    assert Path("out/model.npz").exists()


@pytest.mark.filterwarnings("default::sklearn.exceptions.ConvergenceWarning")
def test_a_limit_on_time_that_is_too_short_for_a_step(capsys, rows, monkeypatch):
    """Half an hour passes whenever somebody looks at the clock: there are files all the same."""
    seconds = itertools.count(0.0, 1800.0)
    monkeypatch.setattr(cancellation, "time", SimpleNamespace(perf_counter=lambda: next(seconds)))
    for method in ("auto", "exact", "compressed"):
        told = result(capsys, *FIT, "-o", method, "--method", method, "--time", "1s")
        assert (told["steps"], told["stopped"]) == (0, "time_budget")
        assert "too short" in told["warnings"][0]
        assert set(told["files"]) == {"model", "labels", "history", "report"}


def test_a_limit_on_time_begins_when_all_is_compiled(capsys, monkeypatch):
    calls = []
    monkeypatch.setattr(methods, "warm", lambda *_: calls.append("warm"))
    result(capsys, *FIT, "-o", "out", "--no-report")
    notes = json.loads(Path("out/run.json").read_text())
    Path("out/run.json").write_text(json.dumps({**notes, "status": "running"}))
    assert calls == []
    result(capsys, "resume", "out", "--time", "9s", "-q", "--data", "rows.npy")
    assert calls == ["warm"]
