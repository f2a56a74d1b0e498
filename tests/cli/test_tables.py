"""An analyst's table on the command line: inspect, one line of fit, predict on a new table."""

import csv
import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

import shoal
from shoal.cli import errors
from shoal.cli.data import dominant_columns
from tests.cli.invoke import refused, result, run
from tests.fixtures.customers import customers, write

pytest.importorskip("pyarrow")
pytestmark = pytest.mark.filterwarnings("always:.*not clustered by", "always:.*did not have")
N = 1500


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the table, and the folder of a fit of it, made by the command that `inspect` suggests."""
    place = tmp_path_factory.mktemp("customers")
    write(place / "customers.csv", customers(N)[0])
    return place


@pytest.fixture
def here(folder, monkeypatch):
    monkeypatch.chdir(folder)
    return folder


def test_inspect_suggests_a_fit_that_finds_the_segments(capsys, here):
    printed = result(capsys, "inspect", "customers.csv")
    assert printed["names"] == ["age", "income", "visits", "plan", "newsletter"]
    assert [column["kind"] for column in printed["table"]] == [
        *("id", "text", "date", "number", "number", "number", "category", "boolean", "text")
    ]
    assert "values are missing in columns 'age'" in printed["problem"]
    words = shlex.split(printed["command"])[1:]
    assert words == shlex.split("fit customers.csv -k 4 -o out --missing median --standardize")
    done = result(capsys, *words, "-q", "--threads", 1)
    assert done["files"]["labels"] == "out/labels.csv"
    assert any("not clustered by: 'customer_id'" in warning for warning in done["warnings"])
    with open("out/labels.csv") as file:
        table = list(csv.DictReader(file))
    columns, segments = customers(N)
    assert list(table[0]) == ["customer_id", "cluster", "distance", "second_cluster"]
    assert [int(row["customer_id"]) for row in table] == columns["customer_id"]
    assert adjusted_rand_score(segments, [row["cluster"] for row in table]) > 0.9
    model, rows = shoal.load("out/model.npz"), shoal.open_rows("customers.csv", missing="median")
    distances = model.transform(rows)
    nearest = np.sort(distances, axis=1)
    np.testing.assert_allclose([float(row["distance"]) for row in table], nearest[:, 0], rtol=1e-4)
    seconds = distances[np.arange(N), [int(row["second_cluster"]) for row in table]]
    np.testing.assert_allclose(seconds, nearest[:, 1], rtol=1e-12)


def test_predict_on_a_new_table(capsys, here):
    if not Path("out").exists():
        test_inspect_suggests_a_fit_that_finds_the_segments(capsys, here)
    columns = customers(300, seed=5)[0]
    columns["comment"][0] = "=1+1"
    turned = dict(reversed(columns.items()))  # columns are found by name
    write("new.csv", turned)
    printed = result(capsys, "predict", "out", "new.csv", "-o", "new-labels.csv", "--join", "-q")
    assert (printed["rows"], printed["left_out"]) == (300, 0)
    with open("new-labels.csv", newline="") as file:
        joined = list(csv.DictReader(file))
    with open("new.csv", newline="") as file:
        original = list(csv.DictReader(file))
    assert [{name: row[name] for name in turned} for row in joined[1:]] == original[1:]
    assert joined[0]["comment"] == "'=1+1"
    expected = shoal.load("out/model.npz").predict(
        shoal.open_rows("new.csv", preprocessing=shoal.load("out/model.npz").preprocessing_)
    )
    assert [int(row["cluster"]) for row in joined] == expected.tolist()
    printed = result(capsys, "predict", "out", "new.csv", "-o", "new.npy", "--missing", "drop", "-q")
    labels = np.load("new.npy")
    has_gap = [any(row[name] == "" for name in ("age", "income", "visits", "plan", "newsletter")) for row in original]
    np.testing.assert_array_equal(labels < 0, has_gap)
    assert printed["left_out"] == sum(has_gap)
    write("less.csv", {"inkome" if name == "income" else name: values for name, values in columns.items()})
    says = refused(capsys, errors.BAD_DATA, "predict", "out", "less.csv", "-o", "less.npy")
    assert "no column 'income' (did you mean 'inkome'?)" in says
    assert "the model was fitted to a table" in refused(
        capsys, errors.USAGE, "predict", "out", "new.csv", "-o", "l.csv", "--columns", "age"
    )
    assert "as rows of numbers" in join_refusal(capsys)


def join_refusal(capsys):
    np.save("plain.npy", np.arange(12.0).reshape(6, 2))
    return refused(capsys, errors.USAGE, "fit", "plain.npy", "-k", 2, "-o", "plain", "--join", "-q")


def test_errors_about_data(capsys, here):
    fit = ("fit", "customers.csv", "-k", 4, "-o", "never", "-q")
    says = refused(capsys, errors.BAD_DATA, *fit)
    assert re.search(r"missing in columns 'age' \(\d+\).*use --missing drop .*--missing median to fill", says)
    assert "=" not in says
    assert "did you mean 'income'" in refused(capsys, errors.BAD_DATA, *fit, "--columns", "age,incom")
    assert not Path("never").exists()
    code, _, err = run(capsys, *fit, "--missing", "mean", "--method", "spectral", "--set", "sigm=0.1")
    assert (code, "did you mean 'sigma'" in err.splitlines()[-1]) == (errors.USAGE, True)
    assert "(did you mean spectral?)" in refused(capsys, errors.USAGE, *fit, "--method", "spektral")


def test_unscaled_columns_are_named(capsys, here):
    done = result(capsys, "fit", "customers.csv", "-k", 4, "-o", "raw", "-q", "--missing", "mean", "--no-report", "--force")
    assert any(warning.startswith("column 'income' makes up 100% of the variance") for warning in done["warnings"])


@pytest.mark.parametrize(
    ("shares", "names"),
    [
        *(([0.95, 0.05], "a"), ([0.85, 0.15], ""), ([0.5, 0.45, 0.03, 0.02], ""), ([1.0], ""), ([0.92, 0.04, 0.04], "a")),
        *(([0.5, 0.42, *[0.01] * 8], "ab"), ([1 / 16] * 16, "")),
    ],
)
def test_dominant_columns(shares, names):
    assert dominant_columns(dict(zip("abcdefghijklmnopq", shares, strict=False))) == list(names)


def test_stdin(capsys, here, monkeypatch):
    with open("customers.csv", "rb") as file:
        monkeypatch.setattr("sys.stdin", type("", (), {"buffer": file}))
        assert result(capsys, "inspect", "-")["rows"] == N
    Path("x.jsonl").write_text("".join(json.dumps({"a": i, "b": i % 3}) + "\n" for i in range(9)))
    with open("x.jsonl", "rb") as file:
        monkeypatch.setattr("sys.stdin", type("", (), {"buffer": file}))
        assert result(capsys, "inspect", "-")["names"] == ["a", "b"]


def test_methods(capsys):
    assert "spectral" in [method["method"] for method in result(capsys, "methods")["methods"]]
    printed = result(capsys, "methods", "spectral")
    assert {"sigma", "affinity"} <= {parameter["name"] for parameter in printed["parameters"]}
    code, out, _ = run(capsys, "methods", "lloyd")
    assert code == 0
    assert "algorithm" in out
    assert "'lloyd'" in run(capsys, "methods")[1]
    assert "did you mean lloyd" in refused(capsys, errors.USAGE, "methods", "loyd")
