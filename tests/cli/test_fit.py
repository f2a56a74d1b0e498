"""Tests of `shoal fit`, `predict`, `inspect` and `resume`: output files and errors."""

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
from shoal.cli import errors, estimators, results, run_record, stopping
from shoal.cli import run as run_module
from shoal.cli.estimators import compile_kernels
from shoal.cli.methods import REGISTRY
from shoal.cli.settings import FitSettings
from shoal.data import cancellation
from shoal.data.source import FileSource
from shoal.data.sources import find_source
from shoal.fit import loop as driver
from tests.cli.invoke import refused, result, run

pytestmark = pytest.mark.usefixtures("rows")


@pytest.fixture
def rows(tmp_path, monkeypatch):
    """Three well-separated groups in `rows.npy`, in the working directory."""
    monkeypatch.chdir(tmp_path)
    X = np.random.default_rng(0).normal(size=(300, 4)).astype(np.float32)
    X[:, 0] += 50 * (np.arange(300) % 3)
    np.save("rows.npy", X)
    return X


FIT = ("fit", "rows.npy", "-k", 3, "--quiet", "--threads", 1)


def test_fit_writes_all_files(capsys, rows, tmp_path):
    printed = result(capsys, *FIT, "-o", "out", "--seed", 7)
    model = shoal.load("out/model.npz")
    labels = np.load("out/labels.npy", allow_pickle=False)
    assert sorted(p.name for p in (tmp_path / "out").iterdir() if p.name != ".lock") == sorted(
        ["model.npz", "labels.npy", "history.csv", "report.html", "run.json"]
    )
    assert printed["energy"] == model.inertia_
    assert (printed["rows"], printed["columns"], printed["clusters"], printed["seed"]) == (300, 4, 3, 7)
    np.testing.assert_array_equal(labels, model.predict(rows))
    history = list(csv.DictReader(Path("out/history.csv").read_text().splitlines()))
    assert [int(record["step"]) for record in history] == list(range(1, printed["steps"] + 1))
    stored = json.loads(Path("out/run.json").read_text())
    assert (stored["status"], stored["result"]) == ("done", printed)
    assert "Content-Security-Policy" in Path("out/report.html").read_text()


def test_fit_equals_the_estimator(capsys, rows):
    result(capsys, *FIT, "-o", "out", "--method", "lloyd", "--init", "random", "--set", "n_init=2", "--no-report")
    model = shoal.KMeans(3, algorithm="lloyd", init="random", n_init=2, random_state=0).fit(rows)
    np.testing.assert_array_equal(shoal.load("out/model.npz").cluster_centers_, model.cluster_centers_)
    result(capsys, *FIT, "-o", "again", "--method", "exact", "--init", "out/model.npz", "--no-report")
    assert shoal.load("again/model.npz").n_iter_ == 1


@pytest.mark.parametrize("method", REGISTRY)
def test_compile_kernels_reads_no_rows(method, rows):
    """Kernels are compiled with synthetic rows; no row of the file is read."""

    class Unread(FileSource):
        shape, dtype, take, materialize = (10**9, 4), np.dtype(np.float32), None, None

        def read(self, start, stop):
            assert start == stop
            return rows[start:stop]

    compile_kernels(Unread(), FitSettings(method=method, clusters=20, threads=1))


def test_compile_kernels_sparse(rows):
    some = find_source(sparse.csr_array(rows))
    compile_kernels(some, FitSettings(method="lloyd", clusters=20, metric="cosine", threads=1))
    with pytest.raises(errors.InvalidDataError, match="needs dense rows"):
        compile_kernels(some, FitSettings(method="projected", clusters=20, threads=1))


def test_time_limit_for_method_without_n_init(capsys):
    assert result(capsys, *FIT, "-o", "out", "--no-report", "--method", "spectral-power", "--time", "20s")["steps"] > 0


def test_text_output_and_progress(capsys):
    code, out, err = run(capsys, *FIT, "-o", "out", "--no-report")
    assert (code, err) == (0, "")
    assert "300 x 4" in out
    code, out, err = run(capsys, "fit", "rows.npy", "-k", 3, "-o", "two", "--no-report", "--progress", "json")
    steps = [json.loads(line) for line in err.splitlines()]
    assert any("rows_per_second" in step for step in steps)
    assert run(capsys, *FIT[:4], "-o", "three", "--no-report", "--progress", "bar", "--time", "1m")[0] == 0
    assert "\x1b" not in out + err


def test_existing_files_need_force(capsys, tmp_path):
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


def test_id_column_writes_parquet_labels(capsys):
    pq = pytest.importorskip("pyarrow.parquet")
    with open("rows.csv", "w") as file:
        file.write("name,a,b\n" + "".join(f"=r{i},{i % 2 * 100},{i}\n" for i in range(20)))
    printed = result(capsys, "fit", "rows.csv", "-k", 2, "-q", "-o", "out", "--id-column", "name", "--columns", "a")
    table = pq.read_table(printed["files"]["labels"])
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


def test_labels_are_kept_if_identifiers_cannot_be_written(capsys, rows):
    """They are not looked at before the fit, whose result must not be lost."""
    pa, feather = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.feather")
    spans = pa.array([(1, 2, 3)] * 300, pa.month_day_nano_interval())
    feather.write_feather(pa.table({"span": spans, "a": rows[:, 0], "b": rows[:, 1]}), "rows.arrow")
    code, _, err = run(capsys, "fit", "rows.arrow", "-k", 2, "-q", "-o", "out", "--id-column", "span")
    assert (code, err.count("\n")) == (0, 1)
    assert "labels.npy was written" in err
    assert "--id-column" in err
    assert json.loads(Path("out/run.json").read_text())["result"]["files"]["labels"] == "out/labels.npy"
    np.testing.assert_array_equal(np.load("out/labels.npy"), shoal.load("out/model.npz").labels_)


def test_identifiers_of_different_types_in_a_folder(capsys, rows):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    Path("parts").mkdir()
    for name, ids in (("a", range(150)), ("b", map(str, range(150)))):
        parquet.write_table(pa.table({"id": list(ids), "x": rows[:150, 0], "y": rows[:150, 1]}), f"parts/{name}.parquet")
    assert (
        result(capsys, "fit", "parts", "-k", 2, "-q", "-o", "out", "--id-column", "id")["files"]["labels"] == "out/labels.npy"
    )
    code, _, err = run(capsys, "predict", "out", "parts", "-q", "-o", "l.parquet", "--id-column", "id")
    assert (code, Path("l.parquet").exists()) == (errors.BAD_DATA, False), err


@pytest.mark.parametrize("column", ["--id-column", "--text-column"])
def test_dates_that_python_does_not_have(capsys, rows, column):
    pa, feather = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.feather")
    dates = pa.array([2**62] * 300, pa.timestamp("s"))
    feather.write_feather(pa.table({"when": dates, "a": rows[:, 0], "b": rows[:, 1]}), "rows.arrow")
    arguments = ("fit", "rows.arrow", "-k", 2, "-q", "-o", "out", "--columns", "a,b", column, "when")
    assert "report" in result(capsys, *arguments)["files"]
    assert "unreadable timestamp" in Path("out/report.html").read_text()


def test_identifiers_of_invalid_text(capsys, rows):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    offsets = pa.array(np.arange(301, dtype=np.int32)).buffers()[1]
    words = pa.StringArray.from_buffers(300, offsets, pa.py_buffer(b"\xff" * 300))
    parquet.write_table(pa.table({"word": words, "a": rows[:, 0], "b": rows[:, 1]}), "rows.parquet")
    printed = result(capsys, "fit", "rows.parquet", "-k", 2, "-q", "-o", "out", "--id-column", "word")
    assert (printed["files"]["labels"], printed["files"]["report"]) == ("out/labels.npy", "out/report.html")
    with pytest.raises(shoal.exceptions.InvalidFileError, match=r"rows\.parquet, column 'word'"):
        np.asarray(shoal.open_rows("rows.parquet", id_column="word").ids)


HOSTILE = "[/] =cmd a\nb\x1b[31m<i>\u202e"


def test_control_characters_in_names_are_escaped(capsys, rows):
    """Names of files, columns and rows must not affect the terminal, spreadsheets or the HTML report."""
    pq, pa = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    columns = {f"={HOSTILE}{j}": rows[:, j] for j in range(3)}
    data, out = f"{HOSTILE}.parquet".replace("/", "b"), f"out{HOSTILE}".replace("/", "b")
    pq.write_table(pa.table({**columns, "name": [f"@{HOSTILE}{i}" for i in range(300)]}), data)
    code, printed, err = run(capsys, "fit", data, "-k", 2, "--id-column", "name", "-o", out)
    assert code == 0, err
    for words in (["inspect", data, "--id-column", "name"], ["export", f"{out}/model.npz", "--to", "csv"], ["inspect", data]):
        more = run(capsys, *words)
        printed, err = printed + more[1], err + more[2]
    assert "[/]" in printed
    assert "[b]" in err
    assert not any(c in printed + err for c in "\x1b\u202e")
    assert all(len(line) > 3 for line in (printed + err).splitlines())  # no name breaks a line
    page = Path(out, "report.html").read_text()
    assert not any(bad in page for bad in ("\x1b", "\u202e", "<i>", HOSTILE))
    head = Path(out, "model.csv").read_text().splitlines()[0]
    assert head.startswith("cluster,'=[/] =cmd a b")
    table = pq.read_table(f"{out}/labels.parquet")
    assert table.column("id")[0].as_py() == f"@{HOSTILE}0"  # unescaped: Parquet files are not run as formulas


def test_predict_standardized(capsys, rows):
    X = rows * np.float32([1, 1e6, 1e-6, 1]) + np.float32([0, 5e6, 0, -3])
    np.save("uneven.npy", X)
    printed = result(capsys, "fit", "uneven.npy", "-k", 3, "-q", "-o", "out", "--standardize", "--method", "exact")
    model = shoal.Standardized(shoal.KMeans(3, random_state=0)).fit(X)
    assert printed["energy"] == model.inertia_
    np.testing.assert_array_equal(shoal.load("out/model.npz").cluster_centers_, model.cluster_centers_)
    assert printed["warnings"] == []
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
        (errors.USAGE, "'2:1' contains no column", ["--columns", "0,2:1"]),
        (errors.USAGE, "'1:1' contains no column", ["--columns", "0,1:1"]),
        (errors.USAGE, "--metric", ["--metric", "cosine", "--method", "mixture"]),
        (errors.USAGE, "--init", ["--init", "nowhere"]),
        (errors.USAGE, "--image", ["--image", "2by2"]),
        (errors.USAGE, "--image 3x3", ["--image", "3x3"]),
        (errors.USAGE, "--standardize", ["--standardize", "--init", "rows.npy"]),
        (errors.BAD_DATA, "column 9", ["--text-column", "9", "--columns", "0"]),
        (errors.USAGE, "only 300 rows", ["-k", "301"]),
        (errors.USAGE, "use -k 2 or fewer", ["--method", "spectral-landmarks", "--set", "n_landmarks=2"]),
        (errors.USAGE, "--set n_samples=3 or more", ["--method", "spectral-nystrom", "--set", "n_samples=2"]),
        (errors.BAD_DATA, "column 9", ["--columns", "0,9"]),
        (errors.NO_ROOM, "takes about", ["--memory", "10MB"]),
    ],
)
def test_fit_errors(capsys, code, word, arguments):
    assert word in refused(capsys, code, *FIT, "-o", "out", *arguments)
    assert (
        result(capsys, *FIT, "-o", "out", "--no-report", "--method", "lloyd")["rows"] == 300
    )  # the failed command left no files behind


@pytest.mark.parametrize(("content", "word"), [(b"", "empty"), (b"not numbers", "bad.npy"), (None, "NaN")])
def test_fit_invalid_files(capsys, rows, content, word):
    rows[17, 2] = np.nan
    np.save("bad.npy", rows)
    if content is not None:
        Path("bad.npy").write_bytes(content)
    assert word in refused(capsys, errors.BAD_DATA, "fit", "bad.npy", "-k", 3, "-q", "-o", "out")
    assert not Path("out/run.json").exists()


def test_damaged_model_is_rejected(capsys):
    result(capsys, *FIT, "-o", "out", "--no-report")
    data = bytearray(Path("out/model.npz").read_bytes())
    data[len(data) // 2] ^= 1
    Path("out/model.npz").write_bytes(data)
    assert "model.npz" in refused(capsys, errors.REJECTED, "predict", "out/model.npz", "rows.npy", "-q", "-o", "l.npy")
    assert "model.npz" in refused(capsys, errors.REJECTED, "inspect", "out/model.npz")


def test_total_work_of_fit_on_two_engines():
    on_threads, on_workers = {"step": 1, "seconds": 0.5}, {"step": 2, "tasks": 3, "bytes": 10, "lost": 0.5}
    assert results.total_work([on_threads, on_workers, on_workers]) == {"tasks": 6, "bytes": 20, "lost": 1.0}
    assert results.total_work([on_workers, on_threads]) == {"tasks": 3, "bytes": 10, "lost": 0.5}
    assert results.total_work([on_threads]) == results.total_work([]) == {}


def test_inspect(capsys, rows):
    rows[:2, 0] = np.nan, np.inf
    np.save("bad.npy", rows)
    printed = result(capsys, "inspect", "bad.npy")
    assert (printed["rows"], printed["columns"], printed["nan"], printed["infinite"]) == (300, 4, 1, 1)
    printed = result(capsys, "inspect", "rows.npy", "-k", 5, "--memory", "10MB", "--threads", 1)
    assert printed["fit"]["fits"] is False
    assert printed["fit"]["seconds"] > 0
    assert printed["fit"]["bytes"] == pytest.approx(sum(printed["fit"]["parts"].values()))
    assert run(capsys, "inspect", "rows.npy", "-k", 5)[0] == 0
    result(capsys, *FIT, "-o", "out", "--no-report")
    assert result(capsys, "inspect", "out/model.npz")["clusters"] == 3


def test_inspect_text(capsys, rows):
    code, out, _ = run(capsys, "inspect", "rows.npy", "--memory", "10MB", "--threads", 1)
    assert code == 0
    assert "100 clusters, method auto" in out
    assert "above the limit of 10 MB with 1 thread:" in out
    np.save("few.npy", rows[:7])
    assert result(capsys, "inspect", "few.npy")["fit"]["clusters"] == 7
    assert "only 7 rows" in refused(capsys, errors.USAGE, "inspect", "few.npy", "-k", 8)
    np.save("nan.npy", np.full((5, 2), np.nan))
    assert "10 NaN, 0 infinite, no finite ones" in run(capsys, "inspect", "nan.npy")[1]


def test_folder_of_a_fit_as_model(capsys):
    result(capsys, *FIT, "-o", "out", "--no-report")
    assert result(capsys, "inspect", "out")["estimator"] == "NestedKMeans"
    assert result(capsys, "predict", "out", "rows.npy", "-q", "-o", "l.npy")["model"] == str(Path("out/model.npz"))
    np.testing.assert_array_equal(np.load("l.npy"), np.load("out/labels.npy"))
    assert result(capsys, "export", "out", "--to", "csv")["path"] == str(Path("out/model.csv"))
    Path("out/model.npz").unlink()
    for words in (("inspect", "out"), ("predict", "out", "rows.npy", "-o", "m.npy"), ("export", "out", "--to", "csv")):
        assert "without a model" in refused(capsys, errors.USAGE, *words)


def test_inspect_plans_with_estimator_parameters(capsys):
    inspect = ("inspect", "rows.npy", "-k", 20, "--method", "spectral-landmarks", "--threads", 1)
    few, many = (result(capsys, *inspect, "--set", f"n_nearest={count}")["fit"]["bytes"] for count in (2, 10))
    assert few < many
    assert "n_landmarks=10 finds at most 10" in refused(capsys, errors.USAGE, *inspect, "--set", "n_landmarks=10")


def test_resume_completed_fit(capsys):
    printed = result(capsys, *FIT, "-o", "out", "--no-report")
    assert result(capsys, "resume", "out") == printed


def test_resume_from_another_folder(capsys, rows, tmp_path, monkeypatch):
    """Relative paths are resolved when the run starts."""
    np.save("start.npy", rows[:3])
    printed = result(capsys, *FIT, "-o", "out", "--method", "exact", "--init", "start.npy", "--no-report")
    stored = json.loads(Path("out/run.json").read_text())
    Path("out/run.json").write_text(json.dumps({**stored, "status": "running"}))
    Path("out/.report.html.999999999.0a.tmp").write_text("half of it")
    (tmp_path / "deeper").mkdir()
    monkeypatch.chdir(tmp_path / "deeper")
    typed = ("--data", "../rows.npy", "--init", "../start.npy")
    assert result(capsys, "resume", "../out", "-q", *typed)["energy"] == printed["energy"]
    assert not list(Path("../out").glob(".*.tmp"))
    assert "run.json" in refused(capsys, errors.USAGE, "resume", ".")
    assert not list(Path().iterdir())  # nothing is written to a folder without a run


def test_report_shows_images_and_texts(capsys):
    with open("rows.csv", "w") as file:
        file.write("a,b,c,d,note\n" + "".join(f"{i % 2 * 9},{i},1,2,row number {i}\n" for i in range(40)))
    printed = result(capsys, "fit", "rows.csv", "-k", 2, "-q", "-o", "out", "--text-column", "note", "--image", "2x2")
    page = Path(printed["files"]["report"]).read_text()
    assert "row number " in page
    assert "data:image/png" in page


def test_resume_errors(capsys, rows):
    result(capsys, *FIT, "-o", "out", "--no-report")
    stored = json.loads(Path("out/run.json").read_text())
    Path("out/run.json").write_text(json.dumps({**stored, "status": "running"}))
    np.save("rows.npy", rows + 1)
    assert "has changed" in refused(capsys, errors.BAD_DATA, "resume", "out", "-q", "--data", "rows.npy")
    Path("out/run.json").write_text("{")
    assert "run.json" in refused(capsys, errors.REJECTED, "resume", "out", "-q")
    Path("out/run.json").write_text(json.dumps({**stored, "settings": {"method": "magic"}}))
    assert "run.json" in refused(capsys, errors.REJECTED, "resume", "out", "-q")
    Path("out/run.json").unlink()
    assert "run.json" in refused(capsys, errors.USAGE, "resume", "out", "-q")


def test_full_disk_is_reported(capsys, monkeypatch):
    monkeypatch.setattr("os.fsync", lambda fd: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    assert "No space" in refused(capsys, errors.NO_ROOM, *FIT, "-o", "out")


def test_locked_folder(capsys, tmp_path):
    from shoal.cli.folder import lock_folder

    (tmp_path / "out").mkdir()
    with lock_folder(tmp_path / "out"):
        assert "another process" in refused(capsys, errors.USAGE, *FIT, "-o", "out")


def test_a_lock_taken_while_the_folder_is_removed(monkeypatch, tmp_path):
    """The original error is raised if another process creates the lock file between the removal of file and folder."""
    from shoal.cli.folder import LOCK, lock_folder

    unlink = Path.unlink

    def unlink_and_create(path, *args, **options):
        unlink(path, *args, **options)
        path.touch()

    monkeypatch.setattr(Path, "unlink", unlink_and_create)
    with pytest.raises(ZeroDivisionError), lock_folder(tmp_path / "out"):
        _ = 1 / 0
    assert [path.name for path in (tmp_path / "out").iterdir()] == [LOCK]


def test_a_lock_file_removed_before_it_is_locked(monkeypatch, tmp_path):
    """A lock on a file that is no longer in the folder does not exclude other processes."""
    import fcntl

    import click

    from shoal.cli.folder import LOCK, lock_folder

    flock = fcntl.flock

    def remove_and_lock(fd, how):
        (tmp_path / "out" / LOCK).unlink()
        flock(fd, how)

    monkeypatch.setattr(fcntl, "flock", remove_and_lock)
    with pytest.raises(click.UsageError, match="another process"), lock_folder(tmp_path / "out"):
        pass


def test_signal_handlers_are_restored():
    import signal

    before = signal.getsignal(signal.SIGTERM)
    with stopping.handle_signals():
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before


class TestFailedFitKeepsEarlierRun:
    """A failed fit with --force leaves the files of the earlier run unchanged."""

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
    def test_invalid_settings(self, capsys, before, code, arguments):
        refused(capsys, code, *FIT, "-o", "out", "--force", *arguments)
        assert {path.name: path.read_bytes() for path in Path("out").iterdir()} == before

    def test_invalid_rows(self, capsys, before, rows):
        rows[200, 1] = np.nan
        np.save("nan.npy", rows)
        refused(capsys, errors.BAD_DATA, "fit", "nan.npy", "-k", 3, "-q", "-o", "out", "--force")
        assert {path.name: path.read_bytes() for path in Path("out").iterdir()} == before

    def test_out_of_memory(self, capsys, before, monkeypatch):
        monkeypatch.setattr("shoal.cli.run._fit_model", lambda *_: (_ for _ in ()).throw(MemoryError))
        refused(capsys, errors.NO_ROOM, *FIT, "-o", "out", "--force")
        assert {path.name: path.read_bytes() for path in Path("out").iterdir()} == before

    @pytest.mark.parametrize("fails", ["os.fsync", "os.replace", "shoal.cli.run._fit_model"])
    def test_resumable_run(self, capsys, monkeypatch, fails):
        """A stopped run can still be resumed after a new run failed to start."""
        Path("out").mkdir()
        old = {"run.json": b"the stored of it", "checkpoint.npz": b"its state"}
        for name, data in old.items():
            Path("out", name).write_bytes(data)
        monkeypatch.setattr(fails, lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        refused(capsys, errors.NO_ROOM, *FIT, "-o", "out", "--force")
        assert {path.name: path.read_bytes() for path in Path("out").iterdir() if path.name != ".lock"} == old

    @pytest.mark.parametrize("fails", ["write_records", "write_run_record", "publish"])
    def test_output_files_cannot_be_written(self, capsys, before, monkeypatch, fails):
        """All new files are written before an old one is replaced."""

        def full(*_):
            raise errors.ResourceLimitError("full")

        monkeypatch.setattr(results, fails, full)
        refused(capsys, errors.NO_ROOM, *FIT, "-o", "out", "--force", "--seed", 5)
        assert {path.name: path.read_bytes() for path in Path("out").iterdir()} == before

    def test_backup_cannot_be_written(self, capsys, before, monkeypatch):
        def half(path, mode):
            Path(path).write_bytes(b"{")
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(run_module, "open", half, raising=False)
        refused(capsys, errors.NO_ROOM, *FIT, "-o", "out", "--force")
        assert {path.name: path.read_bytes() for path in Path("out").iterdir()} == before

    @pytest.mark.slow
    @pytest.mark.parametrize("number", failing.ERRORS)
    def test_any_write_fails(self, tmp_path, number):
        """Each write fails once: the earlier run is complete, or its record does not claim to be."""
        tried, harmed = failing.fits(tmp_path, number, quick=False)
        assert tried > 50
        assert not harmed

    def test_successful_fit_replaces_it(self, capsys, before):
        result(capsys, *FIT, "-o", "out", "--force", "--no-report", "--seed", 5)
        assert not Path("out/report.html").exists()
        assert Path("out/run.json").read_bytes() != before["run.json"]


def test_checkpoint_is_kept_after_read_error(capsys, monkeypatch):
    """A file that was truncated during the fit may be repaired, after which the fit can be resumed."""

    def cut_short(*arguments, **named):
        driver.drive(*arguments, **named)
        raise ValueError("rows.npy: ends early")

    monkeypatch.setattr("shoal.fit.restarts.drive", cut_short)
    monkeypatch.setattr("shoal.cli.run.MIN_CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr("shoal.formats.checkpoint.SHARE", 1e9)
    refused(capsys, errors.BAD_DATA, *FIT, "-o", "out", "--method", "lloyd", "--init", "random")
    assert Path("out/checkpoint.npz").exists()


def test_output_inside_input_folder(capsys, rows):
    Path("dd").mkdir()
    np.save("dd/a.npy", rows)
    np.save("dd/labels.npy", rows)
    result(capsys, *FIT, "-o", "out", "--no-report")
    for out in ("dd", "dd/out"):
        assert "outside" in refused(capsys, errors.USAGE, "fit", "dd", "-k", 3, "-q", "-o", out, "--force")
    assert "outside" in refused(capsys, errors.USAGE, "predict", "out/model.npz", "dd", "-q", "-o", "dd/b.npy")
    assert sorted(path.name for path in Path("dd").iterdir()) == ["a.npy", "labels.npy"]


def test_labels_are_kept_if_model_is_too_large(capsys, monkeypatch):
    monkeypatch.setattr("shoal.formats.values.MAX_ROW_BYTES", 100)
    printed = result(capsys, *FIT, "-o", "out", "--method", "spectral-exact", "--no-report")
    assert "model" not in printed["files"]
    assert any("no model was saved" in warning for warning in printed["warnings"])
    assert len(np.load("out/labels.npy")) == 300


def test_predict_svmlight_folder_uses_columns_of_model(capsys):
    """Trailing columns that are empty in all files are included."""
    for name, lines in (("rows", ["1 1:1 4:9", "1 1:2 4:9", "1 2:5", "1 2:6"]), ("others", ["1 1:2", "1 2:7"])):
        Path(name).mkdir()
        for i in range(2):
            Path(name, f"{i}.svm").write_text("\n".join(lines))
    result(capsys, "fit", "rows", "-k", 2, "-q", "-o", "out", "--no-report")
    assert result(capsys, "predict", "out/model.npz", "others", "-q", "-o", "l.npy", "--one-based")["rows"] == 4


def test_predict_numeric_column_names_are_not_positions(capsys, rows):
    """A model with columns named 1, 2 and 3 does not select columns 1 to 3 of a file without names."""
    lines = [",".join(map(str, row)) for row in rows.tolist()]
    Path("rows.csv").write_text("1,2,3\n" + "\n".join(line.partition(",")[2] for line in lines))
    Path("other.csv").write_text("\n".join(lines))
    result(capsys, "fit", "rows.csv", "-k", 3, "-q", "-o", "out", "--no-report", "--header")
    with warnings.catch_warnings(action="ignore"):  # warns that the file has no column names
        words = ("predict", "out/model.npz", "other.csv", "-q", "-o", "l.npy", "--no-header")
        assert "4 features" in refused(capsys, errors.BAD_DATA, *words)


@pytest.mark.parametrize("kind", ["csv", "model"])
def test_init_columns_are_matched_by_name(capsys, rows, kind):
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


@pytest.mark.parametrize("command", [("fit", "-o", "out"), ("sweep",), ("compare", "--methods", "lloyd")])
def test_wide_sparse_init_is_refused_before_it_becomes_dense(capsys, command):
    import tracemalloc

    Path("start.svm").write_text("0 1:1 100000000:2\n" * 3)
    tracemalloc.start()
    try:
        error = refused(capsys, errors.BAD_DATA, command[0], "rows.npy", "-k", 3, "-q", *command[1:], "--init", "start.svm")
        assert tracemalloc.get_traced_memory()[1] < 1e8
    finally:
        tracemalloc.stop()
    assert "3 centroids of 100,000,000 columns" in error


def test_predict_columns_are_matched_by_name(capsys, rows):
    with open("rows.csv", "w") as file:
        file.write("7,b,c,d\n" + "\n".join(",".join(map(str, row)) for row in rows.tolist()))
    with open("other.csv", "w") as file:
        file.write("note,d,7,c,b\n" + "\n".join(f"x,{r[3]},{r[0]},{r[2]},{r[1]}" for r in rows.tolist()))
    result(capsys, "fit", "rows.csv", "-k", 3, "-q", "-o", "out", "--no-report", "--header")
    result(capsys, "predict", "out/model.npz", "other.csv", "-q", "-o", "l.npy", "--header")
    np.testing.assert_array_equal(np.load("l.npy"), np.load("out/labels.npy"))
    with warnings.catch_warnings(action="ignore"):  # warns that the file has no column names
        result(capsys, "predict", "out/model.npz", "rows.npy", "-q", "-o", "l.npy", "--force")
    assert result(capsys, "inspect", "rows.csv", "--columns", "7,1", "--header")["names"] == ["7", "b"]
    assert result(capsys, "inspect", "rows.csv", "--no-header", "--limit-rows", 1, "--columns", "0")["rows"] == 1


@pytest.mark.parametrize("change", [{"clusters": "3"}, {"extra": None}, {"init": 5}, {"columns": "a"}, {"text_column": 7.5}])
def test_resume_invalid_settings(capsys, change):
    result(capsys, *FIT, "-o", "out", "--no-report")
    stored = json.loads(Path("out/run.json").read_text())
    stored = {**stored, "status": "running", "settings": {**stored["settings"], **change}}
    Path("out/run.json").write_text(json.dumps(stored))
    assert "run.json" in refused(capsys, errors.REJECTED, "resume", "out", "-q")


@pytest.mark.parametrize("value", ["0.00000000001s", "1" + "0" * 18 + "m", "9" * 308 + "d", "9" * 400])
def test_times_that_resume_would_reject(capsys, value):
    assert "--time" in refused(capsys, errors.USAGE, *FIT, "-o", "out", "--time", value)


@pytest.mark.parametrize("value", ["0.5", "0.0001kB", "2EB", "9" * 400])
def test_sizes_that_resume_would_reject(capsys, value):
    assert "--memory" in refused(capsys, errors.USAGE, *FIT, "-o", "out", "--memory", value)


def test_counts_that_resume_would_reject(capsys):
    assert "--limit-rows" in refused(capsys, errors.USAGE, *FIT, "-o", "out", "--limit-rows", 2**63)
    for option, value in (("--limit-rows", 2**63 - 1), ("--time", "1" + "0" * 18), ("--memory", "1EB")):
        result(capsys, *FIT, "-o", "out", "--no-report", "--force", option, value)
        assert run_record.read_run_record(Path("out"))[1]


def test_resume_invalid_result(capsys):
    result(capsys, *FIT, "-o", "out", "--no-report")
    stored = json.loads(Path("out/run.json").read_text())
    for text in (json.dumps({**stored, "result": {}}), "[" * 100_000):
        Path("out/run.json").write_text(text)
        assert "run.json" in refused(capsys, errors.REJECTED, "resume", "out", "-q")


def test_broken_stderr_does_not_end_a_fit(capsys, monkeypatch):
    """A fit continues if stderr is closed."""

    def broken(text, err=False):
        if err:
            raise BrokenPipeError

    with monkeypatch.context() as patch:
        patch.setattr("shoal.cli.errors.click.echo", broken)
        code, _, _ = run(capsys, "fit", "rows.npy", "-k", 3, "-o", "out", "--no-report", "--progress", "json")
    assert code == 0
    assert Path("out/model.npz").exists()


@pytest.mark.filterwarnings("default::sklearn.exceptions.ConvergenceWarning")
def test_time_limit_shorter_than_one_step(capsys, rows, monkeypatch):
    """The clock advances half an hour per call; the files are written nevertheless."""
    seconds = itertools.count(0.0, 1800.0)
    monkeypatch.setattr(cancellation, "time", SimpleNamespace(perf_counter=lambda: next(seconds)))
    for method in ("auto", "exact", "compressed"):
        printed = result(capsys, *FIT, "-o", method, "--method", method, "--time", "1s")
        assert (printed["steps"], printed["stopped"]) == (0, "time_budget")
        assert "too short" in printed["warnings"][0]
        assert set(printed["files"]) == {"model", "labels", "history", "report"}


def test_time_limit_starts_after_compilation(capsys, monkeypatch):
    calls = []
    monkeypatch.setattr(estimators, "compile_kernels", lambda *_: calls.append("compile"))
    result(capsys, *FIT, "-o", "out", "--no-report")
    stored = json.loads(Path("out/run.json").read_text())
    Path("out/run.json").write_text(json.dumps({**stored, "status": "running"}))
    assert calls == []
    result(capsys, "resume", "out", "--time", "9s", "-q", "--data", "rows.npy")
    assert calls == ["compile"]
