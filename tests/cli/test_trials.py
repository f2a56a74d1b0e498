"""Tests of `shoal compare`, `sweep` and `export`."""

import json
import re
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import shoal
from shoal.cli import errors, estimators, plan, trials
from shoal.cli.progress import ProgressReporter
from shoal.cli.settings import FitSettings
from shoal.cli.sweep import CountRange, CountRangeType, _sample_errors, _sample_size, _silhouette_rows
from shoal.data.sizes import parse_size
from shoal.data.sources import find_source
from shoal.execution import memory
from shoal.execution.memory_limit import MEMORY_LIMIT
from shoal.kmeans.init import REFINING_INITIALIZERS
from tests.cli.invoke import refused, result, run


@pytest.fixture(autouse=True)
def rows(tmp_path, monkeypatch):
    """Four well-separated groups in `rows.npy`, in the working directory."""
    monkeypatch.chdir(tmp_path)
    X = np.random.default_rng(0).normal(size=(400, 3)).astype(np.float32)
    X[:, :2] += 40 * np.stack([np.arange(400) % 2, np.arange(400) // 2 % 2], axis=1)
    np.save("rows.npy", X)
    return X


def test_compare_exact_methods(capsys):
    printed = result(capsys, "compare", "rows.npy", "-k", 4, "--methods", "lloyd,hamerly", "-q", "--threads", 1, "-o", "c.html")
    first, second = printed["methods"]
    assert (first["method"], second["method"]) == ("lloyd", "hamerly")
    assert (first["energy"], first["steps"]) == (second["energy"], second["steps"])
    assert "lloyd" in Path("c.html").read_text()
    again = ("compare", "rows.npy", "-k", 4, "--methods", "lloyd", "-q")
    assert "--force" in refused(capsys, errors.USAGE, *again, "-o", "c.html")
    code, out, _ = run(capsys, *again)
    assert code == 0
    assert "lloyd" in out
    assert "'magic' is not a method" in refused(capsys, errors.USAGE, *again[:4], "--methods", "lloyd,magic")
    assert "'binary' cannot be compared" in refused(capsys, errors.USAGE, *again[:4], "--methods", "lloyd,binary")


def test_sweep_finds_the_knee(capsys):
    printed = result(capsys, "sweep", "rows.npy", "-k", "2:9:1", "--method", "exact", "-q", "--threads", 1, "-o", "s.html")
    energies = [point["energy"] for point in printed["points"]]
    assert [point["k"] for point in printed["points"]] == list(range(2, 10))
    assert energies == sorted(energies, reverse=True)
    assert (printed["knee"], printed["knee_between"]) == (4, None)
    assert {point["stopped"] for point in printed["points"]} == {"converged"}
    assert max(printed["points"], key=lambda point: point["silhouette"])["k"] == 4
    assert Path("s.html").stat().st_size < 2_000_000
    assert "range" in refused(capsys, errors.USAGE, "sweep", "rows.npy", "-k", "9:2")
    assert "'lloyd,exact' is not one of" in refused(
        capsys, errors.USAGE, "sweep", "rows.npy", "-k", "2:4", "--method", "lloyd,exact"
    )


@pytest.mark.parametrize("command", [("compare", "--methods", "lloyd"), ("sweep", "--method", "lloyd")])
def test_init_columns_are_matched_by_name(capsys, rows, command):
    """The order of the columns of the initial centroids does not change the result."""
    start = rows[[0, 4, 1]]  # two in one group, so that a wrong order of columns leads to another result
    for name, data, order in (("rows", rows, [0, 1, 2]), ("start", start, [0, 1, 2]), ("turned", start, [2, 0, 1])):
        lines = [",".join("abc"[j] for j in order), *(",".join(map(str, row)) for row in data[:, order].tolist())]
        Path(f"{name}.csv").write_text("\n".join(lines))
    options = ("rows.csv", "-k", 3, "-q", "--threads", 1, "--init")
    same, turned = (result(capsys, *command, *options, f"{name}.csv") for name in ("start", "turned"))
    energies = [printed.get("methods", printed.get("points"))[0]["energy"] for printed in (same, turned)]
    assert energies[0] == energies[1]
    Path("other.csv").write_text("a,b,x\n1,2,3\n4,5,6\n7,8,9\n")
    assert "a, b, x" in refused(capsys, errors.BAD_DATA, *command, *options, "other.csv")


def test_sweep_several_counts_from_one_file(capsys, rows):
    np.save("start.npy", rows[:3])
    assert "--init start.npy" in refused(capsys, errors.USAGE, "sweep", "rows.npy", "-k", "3:5", "-q", "--init", "start.npy")


def test_sweep_named_columns_without_warnings(capsys, rows):
    Path("rows.csv").write_text("a,b,c\n" + "\n".join(",".join(map(str, row)) for row in rows.tolist()))
    code, _, err = run(capsys, "sweep", "rows.csv", "-k", "2:4", "-q", "--threads", 1)
    assert (code, err) == (0, "")


@pytest.mark.parametrize("init", ["k-means++", "k-means||", "afk-mc2", "random"])
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_compare_starts_where_kmeans_does(capsys, rows, init, metric):
    options = ("--methods", "lloyd", "--init", init, "--metric", metric, "-q", "--threads", 1)
    found = result(capsys, "compare", "rows.npy", "-k", 7, *options)["methods"][0]
    model = shoal.KMeans(7, algorithm="lloyd", init=init, metric=metric, n_init=1, random_state=0, n_threads=1).fit(rows)
    assert (found["energy"], found["steps"]) == (model.inertia_, model.n_iter_)


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
def test_count_ranges(text, counts, coarse):
    assert CountRangeType().convert(text, None, None) == (counts, coarse)


def test_sweep_refines_coarse_range_around_knee(capsys, monkeypatch):
    monkeypatch.setattr("shoal.cli.sweep.MAX_FULL_RANGE", 4)
    monkeypatch.setattr("shoal.cli.sweep.COARSE_COUNTS", 4)
    printed = result(capsys, "sweep", "rows.npy", "-k", "2:14", "--method", "exact", "-q", "--threads", 1)
    assert [point["k"] for point in printed["points"]] == [2, 3, 4, 5, 6, 7, 14]
    assert (printed["knee"], printed["knee_between"]) == (4, None)
    code, out, _ = run(capsys, "sweep", "rows.npy", "-k", "2,4,7,14", "--method", "exact", "-q", "--threads", 1)
    assert code == 0
    assert "knee at k = 4, or else between 2 and 7, where not every k was tried" in out


@pytest.mark.parametrize("words", [("compare", "-k", 2, "--methods", "lloyd"), ("sweep", "-k", "2,3", "--method", "lloyd")])
def test_broken_pipe_is_ignored(capsys, monkeypatch, words):
    def broken(text):
        raise BrokenPipeError

    monkeypatch.setattr("click.echo", broken)
    assert run(capsys, *words, "rows.npy", "-q", "--threads", 1)[0] == 0


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_compare_identical_rows(capsys):
    np.save("equal.npy", np.ones((50, 3), np.float32))
    code, out, err = run(capsys, "compare", "equal.npy", "-k", 3, "--methods", "auto,exact", "-q", "-o", "c.html")
    assert code == 0, err
    assert out.count("+0.00%") == 2


@pytest.mark.parametrize("command", [("compare", "-k", 4, "--methods", "lloyd,exact"), ("sweep", "-k", "3,4")])
def test_trials_respect_memory_limit(capsys, monkeypatch, command):
    """Every fit runs under the limit, with as many threads as the limit allows."""
    limits, threads = [], []
    real = trials.make_estimator

    def watched(settings, *names, **parameters):
        threads.append(settings.threads)
        return real(settings, *names, **parameters)

    monkeypatch.setattr(trials, "make_estimator", watched)
    monkeypatch.setattr(ProgressReporter, "on_step", lambda *_: limits.append(MEMORY_LIMIT.get()))
    printed = result(capsys, *command, "rows.npy", "-q", "--threads", 4, "--memory", "365MB")
    assert len(printed.get("methods", printed.get("points"))) == 2
    assert set(limits) == {365e6}
    assert set(threads) == {2}
    assert MEMORY_LIMIT.get() is None


def test_sweep_plans_the_fits_of_its_sample(capsys):
    """Under the recommended limit, a fit of the sample, whose rows are in memory, is within the limit, too."""
    np.save("many.npy", np.ones((40_000, 32), np.float32))
    message = refused(capsys, errors.NO_ROOM, "sweep", "many.npy", "-k", "5000,6000", "-q", "--memory", "1MB")
    limit = parse_size(re.search(r"allow ([0-9.]+ .B)", message)[1])
    count = _sample_size(shoal.open_rows("many.npy"), CountRange([5000, 6000]), FitSettings(memory=limit, threads=1))
    sample = find_source(np.ones((min(count, 40_000), 32), np.float32))
    assert sum(memory.plan(shoal.KMeans(6000), sample, 1).values()) <= limit


def test_sweep_sample_respects_memory_limit(rows):
    chosen = FitSettings(method="lloyd", threads=1)
    wide = find_source(np.zeros((30_000, 2000), np.float32))
    assert _sample_size(wide, CountRange([3, 5]), chosen) == 20_000
    assert 5 < _sample_size(wide, CountRange([3, 5]), replace(chosen, memory=8.4e8)) < 10_000  # the array itself takes 240 MB
    assert _sample_size(wide, CountRange([3, 5]), replace(chosen, memory=1e8)) == 5


@pytest.mark.parametrize("fits", [[("lloyd", 20), ("elkan", 20)], [("lloyd", 5), ("lloyd", 200)]], ids=["methods", "clusters"])
def test_recommended_memory_is_enough_for_all_fits(fits):
    """The first fit may need less than others; fewer clusters may need more, because their initialization uses more rows."""
    rows = find_source(np.lib.format.open_memmap("many.npy", "w+", np.float32, (1_000_000, 16)))
    planned = [FitSettings(method=method, clusters=k, memory=3.1e8, threads=1) for method, k in fits]
    with pytest.raises(errors.ResourceLimitError) as refused:
        plan.limit_threads_of_all(rows, planned)
    printed = re.search(r"allow ([0-9.]+ .B)\.$", str(refused.value))[1]
    found = plan.limit_threads_of_all(rows, [replace(one, memory=parse_size(printed)) for one in planned])
    assert [(one.method, one.clusters) for one in found] == fits


def test_time_estimate_reads_few_wide_rows(monkeypatch, rows):
    """The trial that estimates the time of a fit reads at most `MAX_TRIAL_BYTES`."""
    reads = []

    class Watched(type(find_source(rows))):
        def read(self, start, stop):
            reads.append(stop - start)
            return super().read(start, stop)

    monkeypatch.setattr(plan, "MAX_TRIAL_BYTES", 8 * 3 * 50)
    assert plan.estimate_seconds(Watched(rows), FitSettings(method="lloyd", clusters=4, threads=1)) > 0
    assert max(reads) == 50


def test_export(capsys):
    result(capsys, "fit", "rows.npy", "-k", 4, "-q", "-o", "out", "--no-report")
    C = shoal.load("out/model.npz").cluster_centers_
    printed = result(capsys, "export", "out/model.npz", "--to", "csv")
    lines = Path(printed["path"]).read_text().splitlines()
    assert lines[0] == "cluster,x0,x1,x2"
    np.testing.assert_array_equal([list(map(float, line.split(",")[1:])) for line in lines[1:]], C)
    data = Path(result(capsys, "export", "out/model.npz", "--to", "safetensors")["path"]).read_bytes()
    size = int.from_bytes(data[:8], "little")
    np.testing.assert_array_equal(np.frombuffer(data[8 + size :], "<f4").reshape(C.shape), C)
    assert "--force" in refused(capsys, errors.USAGE, "export", "out/model.npz", "--to", "csv")
    assert "rows.npy" in refused(capsys, errors.REJECTED, "export", "rows.npy", "--to", "csv", "-o", "c.csv")


def test_export_levels(capsys):
    """A hierarchical model is exported with the parents of its centroids; an index finds its centroids again."""
    pytest.importorskip("pyarrow")
    from pyarrow import parquet

    np.save("many.npy", np.random.default_rng(0).normal(size=(2000, 3)).astype(np.float32))
    words = ("--method", "hierarchical", "--set", "n_levels=3", "--set", "n_neighbors=8")
    printed = result(capsys, "fit", "many.npy", "-k", 60, *words, "-o", "out", "--progress", "none")
    assert "60 clusters of 2,000 rows" in printed["summary"]
    model = shoal.load("out/model.npz")
    grandparents = model.levels_[1].parents[model.parents_]
    table = parquet.read_table(result(capsys, "export", "out", "--to", "parquet")["path"])
    assert table.column_names == ["cluster", "parent 1", "parent 0", "x0", "x1", "x2"]
    np.testing.assert_array_equal(table["parent 1"], model.parents_)
    np.testing.assert_array_equal(table["parent 0"], grandparents)
    np.testing.assert_array_equal(table["x2"], model.cluster_centers_[:, 2])
    lines = Path(result(capsys, "export", "out", "--to", "csv")["path"]).read_text().splitlines()
    assert lines[0] == "cluster,parent 1,parent 0,x0,x1,x2"
    assert [int(line.split(",")[2]) for line in lines[1:]] == grandparents.tolist()
    data = Path(result(capsys, "export", "out", "--to", "safetensors")["path"]).read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    assert header["parents.2"]["shape"] == [60]
    assert header["centers.0"]["shape"] == list(model.levels_[0].centers.shape)
    faiss = pytest.importorskip("faiss")
    index = faiss.read_index(result(capsys, "export", "out", "--to", "faiss")["path"])
    assert index.search(model.cluster_centers_, 1)[1].ravel().tolist() == list(range(60))


def test_export_column_named_cluster(capsys, rows):
    Path("rows.csv").write_text("a,cluster\n" + "\n".join(f"{a},{b}" for a, b in rows[:, :2].tolist()))
    result(capsys, "fit", "rows.csv", "-k", 2, "-q", "-o", "out", "--no-report")
    lines = Path(result(capsys, "export", "out/model.npz", "--to", "csv")["path"]).read_text().splitlines()
    assert lines[0] == "cluster number,a,cluster"
    assert [line.split(",")[0] for line in lines[1:]] == ["0", "1"]
    assert all(line.count(",") == 2 for line in lines)


def test_duplicate_column_names(capsys):
    Path("rows.csv").write_text("a,a\n1,2\n3,4\n5,6\n")
    assert "both named 'a'" in refused(capsys, errors.BAD_DATA, "fit", "rows.csv", "-k", 2, "-q", "-o", "out")


def test_export_binary_codes(capsys):
    Path("rows.csv").write_text("a,b\n" + "\n".join(f"{i % 2},{i % 3}" for i in range(60)))
    result(capsys, "fit", "rows.csv", "-k", 2, "-q", "-o", "out", "--no-report", "--method", "compressed", "--set", "n_bits=8")
    lines = Path(result(capsys, "export", "out/model.npz", "--to", "csv")["path"]).read_text().splitlines()
    assert lines[0].split(",")[1:] == [f"x{j}" for j in range(8)]


def test_export_standardized(capsys, rows):
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
def test_export_faiss_search_returns_labels(capsys, rows, metric):
    faiss = pytest.importorskip("faiss")
    result(capsys, "fit", "rows.npy", "-k", 4, "-q", "-o", "out", "--no-report", "--metric", metric)
    path = result(capsys, "export", "out/model.npz", "--to", "faiss")["path"]
    _, found = faiss.read_index(path).search(rows, 1)
    np.testing.assert_array_equal(found[:, 0], np.load("out/labels.npy"))


@pytest.mark.parametrize(
    ("centers", "message"),
    [
        (np.array([[1e9, 1], [1e9 + 0.25, 1], [1e9 + 9, 1]]), "moves centroid"),
        (np.array([[1.0, 1], [1 + 2.0**-40, 1]]), "moves centroid 1"),
        (np.array([[1e300, 1], [0, 1]]), "overflows"),
        (np.array([[1e30, 1], [0, 1]], np.float32), "overflows"),
        (np.array([[1e-30, 0], [0, 1e-30]]), "underflows"),
        (np.array([[1e-310, 0], [0, 1e-310]]), "moves centroid"),
        (np.array([[1e10, 0], [0, 1], [0, 2], [0, 2]]), None),
        (np.array([[1e9, 1], [1e9 + 640, 1]]), None),
        (np.array([[0.1, 1e-30]]), None),
    ],
)
def test_export_faiss_refuses_centroids_that_float32_does_not_hold(capsys, centers, message):
    pytest.importorskip("faiss")
    model = shoal.KMeans(len(centers), init=centers, max_iter=1)
    with warnings.catch_warnings(action="ignore"):
        shoal.save(model.fit(centers), "model.npz")
    if message is None:
        result(capsys, "export", "model.npz", "--to", "faiss")
    else:
        assert message in refused(capsys, errors.USAGE, "export", "model.npz", "--to", "faiss")
        assert not Path("model.faiss").exists()


def test_sweep_refuses_ranges_that_would_fill_memory(capsys):
    assert "larger step" in refused(capsys, errors.USAGE, "sweep", "rows.npy", "-k", "1:999999999:1")


def test_a_time_limit_includes_initial_centroids(capsys, monkeypatch):
    """Each stage of `compare` and `sweep` gets a part of the limit, and the silhouette fewer rows."""
    seen, scored, plain = [], [], estimators.make_estimator

    def record(settings, *args, **parameters):
        seen.append((settings.clusters, settings.method, settings.time))
        return plain(settings, *args, **parameters)

    def silhouette(X, *args, **options):
        scored.append(len(X))
        return 0.0

    np.save("rows.npy", np.random.default_rng(0).normal(size=(3000, 200)).astype(np.float32))
    limit = ("-q", "--time", "3s")
    for module in (estimators, trials):
        monkeypatch.setattr(module, "make_estimator", record)
    monkeypatch.setattr(shoal.metrics, "simplified_silhouette", silhouette)
    result(capsys, "sweep", "rows.npy", "-k", "40,50", "--method", "minibatch", "-q")
    result(capsys, "sweep", "rows.npy", "-k", "40,50", "--method", "minibatch", *limit)
    times = [(k, seconds) for k, method, seconds in seen if seconds is not None]
    assert [k for k, _ in times] == [40, 40, 50, 50, 50]
    assert [times[i][1] for i in (0, 2, 3)] == [1.5, 0.75, 0.75]
    assert all(0.75 <= times[i][1] < 3 for i in (1, 4))
    assert scored[:2] == [3000, 3000]
    assert min(scored[2:]) >= 1000
    assert _silhouette_rows(np.zeros((50_000, 2)), 100_000, 2.0).shape == (2500, 2)

    methods, remaining = REFINING_INITIALIZERS.methods, []

    def first_rows(rows, k, rng, deadline):
        remaining.append(deadline.remaining())
        return rows.take(np.arange(k))

    monkeypatch.setitem(methods, "k-means++", first_rows)
    result(capsys, "compare", "rows.npy", "-k", 4, "--methods", "lloyd", "-q")
    result(capsys, "compare", "rows.npy", "-k", 4, "--methods", "lloyd", *limit)
    assert [seconds for seconds in remaining if seconds != np.inf] == [pytest.approx(2.5, abs=0.5)]


def test_sweep_computes_distances_in_small_blocks():
    import tracemalloc

    X = np.random.default_rng(0).normal(size=(6000, 4)).astype(np.float32)
    model = shoal.KMeans(3000, init=X[:3000], max_iter=1, n_threads=1).fit(X)
    expected = model.transform(X).min(axis=1).astype(np.float64) ** 2
    tracemalloc.start()
    try:
        found = _sample_errors(model, X)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(found, expected)
    assert peak < 56 << 20  # 43 MB; blocks of 4,096 rows took 81 MB


def test_compare_and_sweep_standardized(capsys, rows):
    np.save("uneven.npy", rows * np.float32([1, 1e-3, 1]))
    options = ("--standardize", "-q", "--threads", 1)
    printed = result(capsys, "compare", "uneven.npy", "-k", 4, "--methods", "exact", *options)
    plain = shoal.Standardized(shoal.KMeans(4, random_state=0)).fit(np.load("uneven.npy"))
    assert printed["methods"][0]["energy"] == pytest.approx(plain.inertia_, rel=0.02)
    printed = result(capsys, "sweep", "uneven.npy", "-k", "2,4", *options)
    assert printed["points"][1]["energy"] == pytest.approx(plain.inertia_, rel=0.02)


def test_recommended_memory_is_enough_for_float64(capsys):
    """Standardized float32 rows may need float64, which is known only after they were read."""
    X = 1 + np.random.default_rng(0).integers(0, 5, (300, 8000)) * 2.0**-23  # differences that scaling in float32 would lose
    X[::2] *= -1
    np.save("fine.npy", X.astype(np.float32))
    command = ("fit", "fine.npy", "-k", 20, "-q", "-o", "out", "--no-report", "--standardize", "--method", "mixture")
    printed = refused(capsys, errors.NO_ROOM, *command, "--memory", "1MB")
    assert result(capsys, *command, "--memory", re.search(r"allow ([0-9.]+ .B)", printed)[1].replace(" ", ""))["clusters"] == 20
