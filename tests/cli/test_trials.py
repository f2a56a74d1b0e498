"""compare, sweep and export."""

import re
from pathlib import Path

import numpy as np
import pytest

import shoal
from shoal.cli import errors, plan, trials
from shoal.cli.progress import Watch
from shoal.cli.sweep import Counts, Span, _room
from shoal.data.sizes import parse_size
from shoal.data.sources import find_source
from shoal.execution.memory import LIMIT
from tests.cli.calling import refused, result, run


@pytest.fixture(autouse=True)
def rows(tmp_path, monkeypatch):
    """Four far groups in `rows.npy`, where we stand."""
    monkeypatch.chdir(tmp_path)
    X = np.random.default_rng(0).normal(size=(400, 3)).astype(np.float32)
    X[:, :2] += 40 * np.stack([np.arange(400) % 2, np.arange(400) // 2 % 2], axis=1)
    np.save("rows.npy", X)
    return X


def test_methods_that_are_equal_compare_equal(capsys):
    told = result(capsys, "compare", "rows.npy", "-k", 4, "--methods", "lloyd,hamerly", "-q", "--threads", 1, "-o", "c.html")
    first, second = told["methods"]
    assert (first["method"], second["method"]) == ("lloyd", "hamerly")
    assert (first["energy"], first["steps"]) == (second["energy"], second["steps"])
    assert "lloyd" in Path("c.html").read_text()
    again = ("compare", "rows.npy", "-k", 4, "--methods", "lloyd", "-q")
    assert "--force" in refused(capsys, errors.USAGE, *again, "-o", "c.html")
    code, out, _ = run(capsys, *again)
    assert code == 0
    assert "lloyd" in out
    assert "magic" in refused(capsys, errors.USAGE, "compare", "rows.npy", "-k", 4, "--methods", "lloyd,magic")


def test_a_sweep_finds_the_groups(capsys):
    told = result(capsys, "sweep", "rows.npy", "-k", "2:9:1", "--method", "exact", "-q", "--threads", 1, "-o", "s.html")
    energies = [point["energy"] for point in told["points"]]
    assert [point["k"] for point in told["points"]] == list(range(2, 10))
    assert energies == sorted(energies, reverse=True)
    assert (told["knee"], told["knee_between"]) == (4, None)
    assert {point["stopped"] for point in told["points"]} == {"converged"}
    assert max(told["points"], key=lambda point: point["silhouette"])["k"] == 4
    assert Path("s.html").stat().st_size < 2_000_000
    assert "range" in refused(capsys, errors.USAGE, "sweep", "rows.npy", "-k", "9:2")
    assert "'lloyd,exact' is not one of" in refused(
        capsys, errors.USAGE, "sweep", "rows.npy", "-k", "2:4", "--method", "lloyd,exact"
    )


@pytest.mark.parametrize(
    ("text", "counts", "coarse"),
    [
        ("2:20", [*range(2, 21)], False),
        ("1:30", [*range(1, 31)], False),
        ("10:40:15", [10, 25, 40], False),
        ("7,5", [5, 7], False),
        ("1:32768", [2**i for i in range(16)], True),
    ],
)
def test_ranges(text, counts, coarse):
    assert Counts().convert(text, None, None) == (counts, coarse)


def test_a_long_range_is_looked_at_once_more_around_the_knee(capsys, monkeypatch):
    monkeypatch.setattr("shoal.cli.sweep.EVERY", 4)
    monkeypatch.setattr("shoal.cli.sweep.MOST", 4)
    told = result(capsys, "sweep", "rows.npy", "-k", "2:14", "--method", "exact", "-q", "--threads", 1)
    assert [point["k"] for point in told["points"]] == [2, 3, 4, 5, 6, 7, 14]
    assert (told["knee"], told["knee_between"]) == (4, None)
    code, out, _ = run(capsys, "sweep", "rows.npy", "-k", "2,4,7,14", "--method", "exact", "-q", "--threads", 1)
    assert code == 0
    assert "knee at k = 4, or else between 2 and 7, where not every k was tried" in out


@pytest.mark.parametrize("words", [("compare", "-k", 2, "--methods", "lloyd"), ("sweep", "-k", "2,3", "--method", "lloyd")])
def test_who_reads_the_result_may_go(capsys, monkeypatch, words):
    def broken(text):
        raise BrokenPipeError

    monkeypatch.setattr("click.echo", broken)
    assert run(capsys, *words, "rows.npy", "-q", "--threads", 1)[0] == 0


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_equal_rows_compare(capsys):
    np.save("equal.npy", np.ones((50, 3), np.float32))
    code, out, err = run(capsys, "compare", "equal.npy", "-k", 3, "--methods", "auto,exact", "-q", "-o", "c.html")
    assert code == 0, err
    assert out.count("+0.00%") == 2


@pytest.mark.parametrize("command", [("compare", "-k", 4, "--methods", "lloyd,exact"), ("sweep", "-k", "3,4")])
def test_trials_keep_to_the_limit_on_memory(capsys, monkeypatch, command):
    """Each fit hears of it, and uses no more threads than it leaves room for."""
    limits, threads = [], []
    real = trials.estimator

    def watched(method, k, settings, **more):
        threads.append(settings["threads"])
        return real(method, k, settings, **more)

    monkeypatch.setattr(trials, "estimator", watched)
    monkeypatch.setattr(Watch, "step", lambda *_: limits.append(LIMIT.get()))
    told = result(capsys, *command, "rows.npy", "-q", "--threads", 4, "--memory", "335MB")
    assert len(told.get("methods", told.get("points"))) == 2
    assert set(limits) == {335e6}
    assert set(threads) == {2}
    assert LIMIT.get() is None


def test_the_sample_of_a_sweep_keeps_to_it_too(rows):
    chosen = {"memory": None, "method": "lloyd", "threads": 1}
    wide = find_source(np.zeros((30_000, 2000), np.float32))
    assert _room(wide, Span([3, 5]), chosen) == 20_000
    assert 5 < _room(wide, Span([3, 5]), {**chosen, "memory": 8.4e8}) < 10_000  # which are in memory: 240 MB
    assert _room(wide, Span([3, 5]), {**chosen, "memory": 1e8}) == 5


@pytest.mark.parametrize("fits", [[("lloyd", 20), ("elkan", 20)], [("lloyd", 5), ("lloyd", 200)]], ids=["methods", "clusters"])
def test_the_limit_that_is_recommended_is_enough_for_all_fits(fits):
    """The first of which may take less than others, and fewer clusters more: their start is found among more rows."""
    rows = find_source(np.lib.format.open_memmap("many.npy", "w+", np.float32, (1_000_000, 16)))
    chosen = {"memory": 3.1e8, "threads": 1}
    with pytest.raises(errors.NoRoom) as refused:
        trials.within(rows, fits, chosen)
    told = re.search(r"allow ([0-9.]+ .B)\.$", str(refused.value))[1]
    found = trials.within(rows, fits, {**chosen, "memory": parse_size(told)})
    assert [(one["method"], one["clusters"]) for one in found] == fits


def test_a_trial_of_wide_rows_is_small(monkeypatch, rows):
    """However wide rows are: `inspect` reads no more than so many bytes to estimate how long a fit takes."""
    reads = []

    class Watched(type(find_source(rows))):
        def read(self, start, stop):
            reads.append(stop - start)
            return super().read(start, stop)

    monkeypatch.setattr(plan, "MAX_TRIAL_BYTES", 8 * 3 * 50)
    assert plan.estimate_seconds(Watched(rows), "lloyd", 4, 1) > 0
    assert max(reads) == 50


def test_exports(capsys):
    result(capsys, "fit", "rows.npy", "-k", 4, "-q", "-o", "out", "--no-report")
    C = shoal.load("out/model.npz").cluster_centers_
    told = result(capsys, "export", "out/model.npz", "--to", "csv")
    lines = Path(told["path"]).read_text().splitlines()
    assert lines[0] == "cluster,x0,x1,x2"
    np.testing.assert_array_equal([list(map(float, line.split(",")[1:])) for line in lines[1:]], C)
    data = Path(result(capsys, "export", "out/model.npz", "--to", "safetensors")["path"]).read_bytes()
    size = int.from_bytes(data[:8], "little")
    np.testing.assert_array_equal(np.frombuffer(data[8 + size :], "<f4").reshape(C.shape), C)
    assert "--force" in refused(capsys, errors.USAGE, "export", "out/model.npz", "--to", "csv")
    assert "rows.npy" in refused(capsys, errors.REJECTED, "export", "rows.npy", "--to", "csv", "-o", "c.csv")


def test_exports_every_column(capsys, rows):
    Path("rows.csv").write_text("a,cluster\n" + "\n".join(f"{a},{b}" for a, b in rows[:, :2].tolist()))
    result(capsys, "fit", "rows.csv", "-k", 2, "-q", "-o", "out", "--no-report")
    lines = Path(result(capsys, "export", "out/model.npz", "--to", "csv")["path"]).read_text().splitlines()
    assert lines[0] == "cluster number,a,cluster"
    assert [line.split(",")[0] for line in lines[1:]] == ["0", "1"]
    assert all(line.count(",") == 2 for line in lines)


def test_columns_of_one_name(capsys):
    Path("rows.csv").write_text("a,a\n1,2\n3,4\n5,6\n")
    assert "both named 'a'" in refused(capsys, errors.BAD_DATA, "fit", "rows.csv", "-k", 2, "-q", "-o", "out")


def test_exports_of_bits(capsys):
    Path("rows.csv").write_text("a,b\n" + "\n".join(f"{i % 2},{i % 3}" for i in range(60)))
    result(capsys, "fit", "rows.csv", "-k", 2, "-q", "-o", "out", "--no-report", "--method", "compressed", "--set", "n_bits=8")
    lines = Path(result(capsys, "export", "out/model.npz", "--to", "csv")["path"]).read_text().splitlines()
    assert lines[0].split(",")[1:] == [f"x{j}" for j in range(8)]


def test_exports_of_standardized_columns(capsys, rows):
    np.save("uneven.npy", rows * np.float32([1, 1000, 1]))
    result(capsys, "fit", "uneven.npy", "-k", 4, "-q", "-o", "out", "--no-report", "--standardize")
    model = shoal.load("out/model.npz")
    lines = Path(result(capsys, "export", "out/model.npz", "--to", "csv")["path"]).read_text().splitlines()
    C = np.array([list(map(float, line.split(",")[1:])) for line in lines[1:]])
    np.testing.assert_array_equal(C.astype(np.float32), model.cluster_centers_)
    assert C[:, 1].max() > 30_000  # in the units of the rows
    data = Path(result(capsys, "export", "out/model.npz", "--to", "safetensors")["path"]).read_bytes()
    assert b'"mean"' in data
    pytest.importorskip("faiss")
    assert "safetensors" in refused(capsys, errors.USAGE, "export", "out/model.npz", "--to", "faiss")


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_what_faiss_finds_is_the_label(capsys, rows, metric):
    faiss = pytest.importorskip("faiss")
    result(capsys, "fit", "rows.npy", "-k", 4, "-q", "-o", "out", "--no-report", "--metric", metric)
    path = result(capsys, "export", "out/model.npz", "--to", "faiss")["path"]
    _, found = faiss.read_index(path).search(rows, 1)
    np.testing.assert_array_equal(found[:, 0], np.load("out/labels.npy"))


def test_standardized_trials(capsys, rows):
    np.save("uneven.npy", rows * np.float32([1, 1e-3, 1]))
    options = ("--standardize", "-q", "--threads", 1)
    told = result(capsys, "compare", "uneven.npy", "-k", 4, "--methods", "exact", *options)
    plain = shoal.Standardized(shoal.KMeans(4, random_state=0)).fit(np.load("uneven.npy"))
    assert told["methods"][0]["energy"] == pytest.approx(plain.inertia_, rel=0.02)
    told = result(capsys, "sweep", "uneven.npy", "-k", "2,4", *options)
    assert told["points"][1]["energy"] == pytest.approx(plain.inertia_, rel=0.02)


def test_the_limit_that_is_recommended_is_enough_for_float64(capsys):
    """Standardized rows of float32 may turn out to need it."""
    X = 1 + np.random.default_rng(0).integers(0, 5, (300, 8000)) * 2.0**-23  # differences that float32 would round away
    X[::2] *= -1
    np.save("fine.npy", X.astype(np.float32))
    command = ("fit", "fine.npy", "-k", 20, "-q", "-o", "out", "--no-report", "--standardize", "--method", "mixture")
    told = refused(capsys, errors.NO_ROOM, *command, "--memory", "1MB")
    assert result(capsys, *command, "--memory", re.search(r"allow ([0-9.]+ .B)", told)[1].replace(" ", ""))["clusters"] == 20
