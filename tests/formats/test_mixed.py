"""Tables with columns of several kinds: the same rows as pandas makes of them, in every way people write them."""

import bz2
import csv
import gzip
import json

import numpy as np
import pytest

import shoal
from shoal.data.preprocessing import NO_VALUE, ColumnEncoding, Preprocessing
from shoal.exceptions import InvalidFileError, InvalidModelError
from shoal.formats import column_profile
from shoal.formats.column_profile import ID_NAME, ColumnScan, TextFormat
from shoal.formats.files import open_rows
from tests.fixtures.customers import customers, write

pa = pytest.importorskip("pyarrow")
pandas = pytest.importorskip("pandas")
pytestmark = pytest.mark.filterwarnings("ignore:.*not clustered by")
N = 400
NAMES = ["age", "income", "visits", "plan=basic", "plan=gold", "plan=silver", "newsletter"]


@pytest.fixture(scope="module")
def columns():
    return customers(N, seed=1)[0]


def features(columns, fill=None):
    """Return the features as pandas makes them, with NaN for missing values: the oracle."""
    frame = pandas.DataFrame(columns)
    numbers = frame[["age", "income", "visits"]].astype(float)
    dummies = pandas.get_dummies(frame["plan"], prefix="plan", prefix_sep="=", dtype=float)
    if fill is None:
        dummies[frame["plan"].isna()] = np.nan
    else:
        dummies[f"plan={NO_VALUE}"] = frame["plan"].isna().astype(float)
    newsletter = frame["newsletter"].map({"yes": 1.0, "no": 0.0})
    X = pandas.concat([numbers, dummies, newsletter.rename("newsletter")], axis=1)
    return X if fill is None else X.fillna(getattr(X, fill)())


WRITERS = {
    "plain.csv": lambda path, columns: write(path, columns),
    "windows.csv": lambda path, columns: write(path, columns, ";", ",", "cp1252"),
    "mark.csv": lambda path, columns: write(path, columns, encoding="utf-8-sig"),
    "wide.csv": lambda path, columns: write(path, columns, "\t", encoding="utf-16"),
    "x.jsonl": write,
    "x.parquet": write,
    "x.arrow": lambda path, columns: pa.feather.write_feather(pa.table(columns), path),
    "x.csv.gz": lambda path, columns: packed(path, columns, gzip.compress),
    "x.csv.bz2": lambda path, columns: packed(path, columns, bz2.compress),
    "x.csv.zst": lambda path, columns: packed(path, columns, lambda data: pa.compress(data, "zstd", asbytes=True)),
    "folder": lambda path, columns: folder(path, columns),
}


def packed(path, columns, compress):
    write(path.with_name("plain.csv"), columns)
    path.write_bytes(compress(path.with_name("plain.csv").read_bytes()))


def folder(path, columns):
    path.mkdir()
    for i in range(2):
        write(path / f"{i}.csv", {name: values[i * N // 2 : (i + 1) * N // 2] for name, values in columns.items()})


@pytest.mark.parametrize("name", WRITERS)
def test_every_way_to_write_a_table(tmp_path, columns, name):
    import pyarrow.feather  # noqa: F401

    WRITERS[name](tmp_path / name, columns)
    how = {"decimal": ","} if name == "windows.csv" else {}
    rows = open_rows(tmp_path / name, missing="drop", **how)
    expected = features(columns).dropna()
    assert rows.feature_names == NAMES
    np.testing.assert_allclose(np.asarray(rows), expected.to_numpy(), rtol=1e-12)
    np.testing.assert_array_equal(rows.row_numbers, expected.index)
    assert rows.id_name == "customer_id"
    assert [int(i) for i in rows.ids] == [columns["customer_id"][i] for i in expected.index]
    assert rows.n_in_file == N
    again = open_rows(tmp_path / name, preprocessing=rows.preprocessing, **how)
    np.testing.assert_array_equal(np.asarray(again), np.asarray(rows))


@pytest.mark.parametrize("missing", ["mean", "median"])
def test_missing_values_are_filled_in(tmp_path, columns, missing):
    write(tmp_path / "x.csv", columns)
    rows = open_rows(tmp_path / "x.csv", missing=missing)
    expected = features(columns, missing)
    np.testing.assert_allclose(np.asarray(rows)[:, :6], expected.to_numpy()[:, :6], rtol=1e-9)
    assert rows.feature_names == [*NAMES[:6], f"plan={NO_VALUE}", "newsletter"]
    assert rows.row_numbers is None


def test_missing_values_are_an_error_that_names_all_columns(tmp_path, columns):
    write(tmp_path / "x.csv", columns)
    frame = pandas.DataFrame(columns)
    with pytest.raises(InvalidFileError) as caught:
        open_rows(tmp_path / "x.csv")
    for name in ("age", "income", "visits", "plan", "newsletter"):
        assert f"{name!r} ({frame[name].isna().sum()})" in str(caught.value)
    first = int(frame[["age", "income", "visits", "plan", "newsletter"]].isna().any(axis=1).argmax())
    assert f"of {N} rows, the first in row {first}: use missing='drop'" in str(caught.value)


def test_the_choice_of_columns(tmp_path, columns):
    write(tmp_path / "x.csv", columns)
    with pytest.warns(UserWarning, match=r"not clustered by: 'customer_id' \(its name.*'signed_up' \(it holds dates"):
        open_rows(tmp_path / "x.csv", missing="drop")
    dates = open_rows(tmp_path / "x.csv", missing="drop", dates="number", exclude=["plan", 3], categorical="drop")
    assert dates.feature_names == ["signed_up", "income", "visits", "newsletter"]
    days = pandas.to_datetime(pandas.Series(columns["signed_up"])[dates.row_numbers])
    np.testing.assert_array_equal(np.asarray(dates)[:, 0], (days - pandas.Timestamp(0)).dt.days)
    assert open_rows(tmp_path / "x.csv", columns=["customer_id", "signed_up"]).feature_names == ["customer_id", "signed_up"]
    for wrong, says in (
        ({"columns": ["incme"]}, r"no column named 'incme' \(did you mean 'income'\?\)"),
        ({"columns": ["comment"]}, "column 'comment' cannot be used, since it is free text"),
        ({"exclude": ["plan"], "columns": ["plan"]}, "both in columns= and in exclude="),
        ({"exclude": ["plann"]}, "did you mean 'plan'"),
        ({"decimal": ".", "thousands": "."}, "is not a way to write numbers"),
        ({"encoding": "klingon"}, "encoding='klingon' is unknown"),
    ):
        with pytest.raises(InvalidFileError, match=says):
            open_rows(tmp_path / "x.csv", missing="drop", **wrong)
    with pytest.raises(ValueError, match="missing='guess' is unknown"):
        open_rows(tmp_path / "x.csv", missing="guess")


def test_excel(tmp_path):
    lines = ["sep=;", "Name;Umsatz;Datum;Aktiv;;", '"A; ""B""";1.234,50;31.12.2023;yes;;', '"two\nlines";-12,5;01.02.2024;no;;']
    (tmp_path / "x.csv").write_bytes(
        "\r\n".join([*lines, "x;3;05.06.2024;no;;", "z;;05.07.2024;yes;;", ""]).encode("utf-8-sig")
    )
    with pytest.raises(InvalidFileError, match=r"'Umsatz' cannot be used, since it holds numbers such as '1.234,50'"):
        open_rows(tmp_path / "x.csv")
    how = {"decimal": ",", "thousands": ".", "dates": "number", "id_column": "Name"}
    rows = open_rows(tmp_path / "x.csv", missing="mean", **how)
    assert rows.feature_names == ["Umsatz", "Datum", "Aktiv"]
    first = [[1234.5, 19722, 1], [-12.5, 19754, 0], [3, 19879, 0], [408.333, 19909, 1]]
    np.testing.assert_allclose(np.asarray(rows), first, rtol=1e-5)
    assert rows.ids.tolist() == ['A; "B"', "two\nlines", "x", "z"]


def test_typing_errors_are_not_text(tmp_path):
    lines = [f"{i},{i * 0.5},a" for i in range(100)]
    lines[70] = "70,3O.5,b"
    (tmp_path / "x.csv").write_text("\n".join(["k,price,kind", *lines]))
    with pytest.raises(InvalidFileError, match=r"row 70, column 'price' is '3O.5', not a number"):
        open_rows(tmp_path / "x.csv")
    (tmp_path / "x.csv").write_text("\n".join(["k,price,kind", *lines[:50], "1,2", *lines[50:60]]))
    with pytest.raises(InvalidFileError, match="line 52 has 2 fields"):
        open_rows(tmp_path / "x.csv", columns=["k"])
    with pytest.raises(InvalidFileError, match="row 50 has 2 fields, but the first line has 3"):
        open_rows(tmp_path / "x.csv", categorical="drop")


def test_dates_whose_day_and_month_cannot_be_told_apart(tmp_path):
    (tmp_path / "x.csv").write_text("when,x\n01/02/2024,1\n03/04/2024,2\n")
    with pytest.raises(InvalidFileError, match="day and month cannot be told apart"):
        open_rows(tmp_path / "x.csv", dates="number")
    (tmp_path / "x.csv").write_text("when,x\n01/02/2024,1\n13/04/2024,2\n")
    assert np.asarray(open_rows(tmp_path / "x.csv", dates="number"))[0, 0] == 19754


def test_values_that_the_fit_did_not_have(tmp_path, columns):
    write(tmp_path / "x.csv", columns)
    chosen = open_rows(tmp_path / "x.csv", missing="median").preprocessing
    later = {**columns, "plan": ["platinum", *columns["plan"][1:]], "comment": [None] * N}
    write(tmp_path / "later.csv", later)
    with pytest.warns(UserWarning, match="column 'plan' has 'platinum' in 1 row, which the fit did not have"):
        rows = open_rows(tmp_path / "later.csv", preprocessing=chosen)
    assert not np.asarray(rows)[0, 3:7].any()
    write(tmp_path / "less.csv", {"incme" if name == "income" else name: values for name, values in later.items()})
    with pytest.raises(InvalidFileError, match=r"no column 'income' \(did you mean 'incme'\?\), used in the fit"):
        open_rows(tmp_path / "less.csv", preprocessing=chosen)
    with pytest.raises(InvalidFileError, match=r"missing='mean' needs the values of the fit"):
        open_rows(tmp_path / "x.csv", preprocessing=chosen, missing="mean")
    np.save(tmp_path / "x.npy", np.ones((3, 8)))
    with pytest.raises(InvalidFileError, match="the preprocessing of the model applies only to"):
        open_rows(tmp_path / "x.npy", preprocessing=chosen)


def test_the_model_holds_its_preprocessing(tmp_path, columns):
    write(tmp_path / "x.csv", columns)
    rows = open_rows(tmp_path / "x.csv", missing="mean")
    model = shoal.Standardized(shoal.KMeans(4, random_state=0)).fit(rows)
    categories = slice(3, 7)
    X = np.asarray(rows)
    np.testing.assert_allclose(model.scale_[categories], np.sqrt(X[:, categories].var(axis=0).sum()), rtol=1e-9)
    np.testing.assert_allclose(np.delete(model.scale_, categories), np.delete(X.std(axis=0), categories), rtol=1e-9)
    shoal.save(model, tmp_path / "m.npz")
    loaded = shoal.load(tmp_path / "m.npz")
    assert loaded.preprocessing_ == rows.preprocessing
    new = open_rows(tmp_path / "x.csv", preprocessing=loaded.preprocessing_)
    np.testing.assert_array_equal(loaded.predict(new), model.labels_)
    assert not hasattr(model.fit(X), "preprocessing_")


BROKEN = [
    Preprocessing((ColumnEncoding("a", "number"),)),  # one feature of two
    Preprocessing((ColumnEncoding("a", "number"), ColumnEncoding("b", "text"))),
    Preprocessing((ColumnEncoding("a", "category", ("x", 3)),)),
    Preprocessing((ColumnEncoding("a", "category"), ColumnEncoding("b", "number"))),
    Preprocessing((ColumnEncoding("a", "number", (), float("inf")), ColumnEncoding("b", "number"))),
    Preprocessing((ColumnEncoding("a", "number"), ColumnEncoding("b", "number")), "guess"),
    Preprocessing((ColumnEncoding("a", "number"), ColumnEncoding("b", "number")), "drop", 3),
]


@pytest.mark.parametrize("preprocessing", BROKEN)
def test_preprocessing_that_no_fit_made_is_refused(tmp_path, preprocessing):
    model = shoal.KMeans(2, random_state=0).fit(np.arange(8.0).reshape(4, 2))
    model.preprocessing_ = preprocessing
    with pytest.raises(ValueError, match="preprocessing_"):
        shoal.save(model, tmp_path / "m.npz")


def test_a_sealed_model_with_invalid_preprocessing_is_refused(tmp_path, monkeypatch):
    model = shoal.KMeans(2, random_state=0).fit(np.arange(8.0).reshape(4, 2))
    model.preprocessing_ = BROKEN[0]
    monkeypatch.setattr("shoal.formats.models.check_model", lambda model: None)
    shoal.save(model, tmp_path / "m.npz")
    monkeypatch.undo()
    with pytest.raises(InvalidModelError, match="preprocessing_ has 1 features, expected 2"):
        shoal.load(tmp_path / "m.npz")


@pytest.mark.parametrize(
    ("name", "is_id"),
    [
        *(("id", 1), ("customer_id", 1), ("CustomerID", 1), ("userId", 1), ("order-key", 1), ("uuid", 1), ("index", 1)),
        *(("paid", 0), ("width", 0), ("valid", 0), ("price_index", 0), ("monkey", 0), ("ID2", 0)),
    ],
)
def test_names_of_identifiers(name, is_id):
    assert bool(ID_NAME.search(name)) is bool(is_id)


def test_profiles_equal_pandas_in_any_batches(monkeypatch):
    rng = np.random.default_rng(0)
    values = [None if rng.random() < 0.1 else round(float(x), 3) for x in rng.normal(1e6, 3, 1000)]
    texts = ["" if value is None else repr(value) for value in values]
    monkeypatch.setattr(column_profile, "MAX_NUMBERS", 1 << 20)
    for data, cut in ((pa.array(values), 1000), (pa.array(values), 37), (pa.array(texts), 101)):
        scan = ColumnScan("x", TextFormat(), 1)
        for start in range(0, 1000, cut):
            scan.add(data.slice(start, cut))
        found, expected = scan.profile(), pandas.Series(values, dtype=float)
        assert (found.kind, found.n, found.missing) == ("number", 1000, expected.isna().sum())
        assert found.first_missing == int(expected.isna().argmax())
        assert found.mean == pytest.approx(expected.mean(), rel=1e-12)
        assert found.variance == pytest.approx(expected.var(ddof=0), rel=1e-6)
        assert (found.minimum, found.maximum) == (expected.min(), expected.max())
        assert found.median == pytest.approx(expected.median(), rel=1e-9)


def test_the_median_of_many_numbers_is_of_evenly_spaced_ones():
    moments = column_profile.Moments(100)
    for part in np.array_split(np.arange(10_001.0), 7):
        moments.add(part)
    assert len(moments.kept) <= 100
    np.testing.assert_array_equal(np.diff(moments.kept), moments.stride)
    assert moments.facts()["median"] == pytest.approx(5000, abs=200)


@pytest.mark.parametrize(
    ("text", "format", "value"),
    [
        *(
            ("1.234.567,8", (",", "."), 1234567.8),
            ("1,234", (".", ","), 1234),
            ("+3", (".", None), 3),
            (".5", (".", None), 0.5),
        ),
        *(("1,23", (".", ","), None), ("1.2.3", (".", None), None), ("1e3", (".", None), 1000), ("0x1", (".", None), None)),
    ],
)
def test_numbers_in_text(text, format, value):
    found, is_number = column_profile.text_numbers(pa.array([text]), TextFormat(*format))
    assert (found[0] if is_number[0] else None) == value


def test_json_lines_report_their_lines(tmp_path):
    records = [{"a": 1, "b": "x"}, {"a": 2.5, "b": None}, {"a": None, "b": "y"}]
    (tmp_path / "x.jsonl").write_text("\n".join(map(json.dumps, records)))
    assert np.asarray(open_rows(tmp_path / "x.jsonl", missing="mean", exclude="b")).tolist() == [[1], [2.5], [1.75]]
    for line, says in (("{", "line 4 is not JSON"), ("[1]", "line 4 holds .1., not an object")):
        (tmp_path / "y.jsonl").write_text("\n".join([*map(json.dumps, records), line]))
        with pytest.raises(InvalidFileError, match=says):
            open_rows(tmp_path / "y.jsonl")


def test_without_pyarrow_the_first_problem_is_named(tmp_path, monkeypatch):
    import sys

    with open(tmp_path / "x.csv", "w", newline="") as file:
        csv.writer(file).writerows([["a", "b"], [1, "x"], [2, "y"]])
    for name in [name for name in sys.modules if name.partition(".")[0] == "pyarrow"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InvalidFileError, match=r"column 'b' is 'x', not a number.*requires pyarrow: pip install pyarrow"):
        open_rows(tmp_path / "x.csv")


def test_lists_are_not_read_as_columns(tmp_path):
    table = {"x": [1.0, 2.0], "kind": ["a", "a"], "tags": [["p"], ["q", "r"]], "place": [{"lat": 1}, {"lat": 2}]}
    import pyarrow.parquet  # noqa: F401

    pa.parquet.write_table(pa.table(table), tmp_path / "x.parquet")
    with pytest.warns(UserWarning, match="'tags' .it holds neither numbers, text nor dates.*'place'"):
        assert open_rows(tmp_path / "x.parquet").feature_names == ["x", "kind=a"]
    pa.parquet.write_table(pa.table({**table, "e": [[1.0], [2.0]]}), tmp_path / "y.parquet")
    assert open_rows(tmp_path / "y.parquet", columns=["e"]).shape == (2, 1)
