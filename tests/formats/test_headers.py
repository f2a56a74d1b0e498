"""The first line of a CSV file is a header, a row, or an error; a row is never dropped silently."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal import open_rows
from shoal.cli import errors
from shoal.exceptions import InvalidFileError
from tests.cli.invoke import refused, result

NEXT = "1,2,3\n4,5,6.5\n"


def write(tmp_path, first, after=NEXT):
    path = tmp_path / "x.csv"
    path.write_text(f"{first}\n{after}", encoding="utf-8")
    return path


@pytest.mark.parametrize("first", ["a,b,c", ",a,b", "Province,1/22/20,1/23/20", "x-1,x-2,x-3", "a,b,1c"])
def test_text_names_the_columns(tmp_path, first):
    rows = open_rows(write(tmp_path, first))
    assert (rows.shape, rows.feature_names) == ((2, 3), first.split(","))


LIKE_VALUES = ['"1990","2000","2010"', "1.5 kg,2 m,3 s", "12:30,13:30,14:30", "0x1F,0x2F,0x3F", "true,false,x"]


@pytest.mark.parametrize("first", LIKE_VALUES)
def test_names_that_could_be_values_warn(tmp_path, first):
    with pytest.warns(UserWarning, match="line 1 is read as a header, since .* header=False to change this"):
        assert open_rows(write(tmp_path, first)).shape == (2, 3)


@pytest.mark.parametrize("first", ["1990,1995,2000", "400.5,410.5,420.5", "3,2,1", "0,1", "0"])
def test_a_row_of_equal_steps_warns(tmp_path, first):
    after = "\n".join([",".join(["1.5"] * len(first.split(",")))] * 2)
    with pytest.warns(UserWarning, match="is read as a row: use header=True to change this"):
        assert open_rows(write(tmp_path, first, after)).shape[0] == 3


@pytest.mark.parametrize("first", ["at,2019,2020", "7,b,c", ",0,1", "Na,K,Cl", "a,b,-", ",name,2019"])
def test_headers_that_contain_numbers_warn(tmp_path, first):
    with pytest.warns(UserWarning, match="line 1 is read as a header, since .* header=False to change this"):
        assert open_rows(write(tmp_path, first)).shape == (2, 3)


def test_a_row_of_text_and_numbers_warns(tmp_path):
    with pytest.warns(UserWarning, match="line 1 is read as a row"):
        assert open_rows(write(tmp_path, "name,2019,2020", "bob,1,2\n"), id_column=0).shape == (2, 2)
    assert open_rows(write(tmp_path, "ann,0.5,2", "bob,1,2\n"), id_column=0).shape == (2, 2)


DATA = [
    *("12.5,n/a,3", "NA,1.0,2.0", ",1,2", "\u22121.5,2,3", "1,2,-", "1,?,3", "null,2,3", "abc,1.5,2", "abc,7,7", "n/a,n/a,n/a"),
    *('"1,234",5,6', '"1,5",2,3', "$5,1,2", "5%,1,2", "1_000,2,3", "１,２,３", "\u06f1,2,3", "(5),1,2", "1,-,x"),
    *("#N/A,1,2", "at,n/a,3", "<0.01,>100,~5", "at,<1,>5", "1.5\u00b10.1,2,3", "True,False,True", "\\N,\\N,\\N"),
]


@pytest.mark.parametrize("first", DATA)
def test_a_header_that_looks_like_data_is_an_error(tmp_path, first):
    path = write(tmp_path, first)
    with pytest.raises(InvalidFileError, match=r"x.csv: line 1, column [012] is .* header=True .* header=False"):
        open_rows(path)
    assert open_rows(path, header=True).shape == (2, 3)
    with pytest.raises(InvalidFileError, match=r"x.csv: (line 1, column [012] is |.*row 0)"):
        open_rows(path, header=False)


BAD = st.one_of(
    st.sampled_from(
        ["", " ", "n/a", "NA", "-", "?", "null", "\u22121", "\u20131.5", "1 234", "1\u00a0234", "5\u20ac", "0x1F", "1e", "x"]
    ),
    st.text(st.characters(blacklist_categories=("Cs", "Cc", "Zl", "Zp"), blacklist_characters='",;|\t'), max_size=6),
)


@given(
    X=st.lists(st.tuples(*[st.floats(-1e6, 1e6).map(lambda x: round(x, 3))] * 3), min_size=2, max_size=5),
    bad=BAD,
    at=st.integers(0, 2),
)
def test_an_invalid_field_never_drops_a_row(tmp_path_factory, X, bad, at):
    fields = list(map(repr, X[0]))
    fields[at] = bad
    path = tmp_path_factory.mktemp("x") / "x.csv"
    path.write_text("\n".join([",".join(fields), *(",".join(map(repr, row)) for row in X[1:])]), encoding="utf-8")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            n = open_rows(path).shape[0]
        except InvalidFileError as error:
            assert "line 1" in str(error)  # noqa: PT017
        else:
            assert n == len(X) or any("header=" in str(warning.message) for warning in caught)


@pytest.mark.parametrize("command", [["inspect"], ["fit", "-k", 1, "-o", "out"], ["compare", "-k", 1, "--methods", "lloyd"]])
def test_on_the_command_line(capsys, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "12.5,n/a,3")
    words = [command[0], "x.csv", *command[1:]]
    message = refused(capsys, errors.BAD_DATA, *words)
    assert "line 1, column 1 is 'n/a'" in message
    assert "use --header if the line is a header, --no-header if it is a row" in message
    if words[0] == "inspect":
        assert result(capsys, *words, "--no-header")["problem"].startswith("values are missing in column 'x1' (1)")
    else:
        assert "missing in column 'x1' (1) of 3 rows, the first in row 0" in refused(
            capsys, errors.BAD_DATA, *words, "--no-header"
        )
    assert result(capsys, *words, "--header")["rows"] == 2


def test_options_of_sweep_and_predict(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "12.5,1,3")
    np.savetxt("rows.csv", np.arange(9.0).reshape(3, 3) + 0.5, delimiter=",")
    with warnings.catch_warnings(action="ignore"):  # warns that the sample has no names
        assert result(capsys, "sweep", "rows.csv", "-k", "1,2", "-q", "--header")["rows"] == 2
    assert result(capsys, "sweep", "rows.csv", "-k", "1,2", "-q", "--no-header")["rows"] == 3
    result(capsys, "fit", "rows.csv", "-k", 1, "-q", "-o", "out", "--no-report")
    with warnings.catch_warnings(action="ignore"):  # warns that the model has no names
        assert result(capsys, "predict", "out/model.npz", "x.csv", "-q", "-o", "l.npy", "--header")["rows"] == 2
    assert result(capsys, "predict", "out/model.npz", "x.csv", "-q", "-o", "m.npy", "--no-header")["rows"] == 3


def test_quotes_in_files_with_white_space(tmp_path):
    """R quotes text: the header and the rows must be split alike, or columns would be confused."""
    path = tmp_path / "x.txt"
    path.write_text('"full name" "x" y "z w"\n"a b" 1 2 3\n"c ""d"" e" 4 5 6\n')
    rows = open_rows(path, columns=["x", "y"], id_column="full name")
    np.testing.assert_array_equal(rows, [[1, 2], [4, 5]])
    assert list(rows.ids) == ["a b", 'c "d" e']
    np.testing.assert_array_equal(open_rows(path, columns=["z w"]), [[3], [6]])
    path.write_text('"1" "2"\n"3" "5"\n')
    np.testing.assert_array_equal(open_rows(path), [[1, 2], [3, 5]])
