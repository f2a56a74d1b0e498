"""The command line: results on stdout, one line on stderr for an error, and an exit code that tells its kind."""

import json
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from shoal import __version__
from shoal.cli import demo, errors, main
from shoal.datasets import load_pendigits

RESULT = {
    "data": "pendigits",
    "rows": 10,
    "columns": 2,
    "clusters": 2,
    "seed": 0,
    "energy": 1.5,
    "steps": 3,
    "stopped": "converged",
    "seconds": 0.1,
    "seconds_to_compile": 0.2,
    "accuracy": 0.5,
    "nmi": 0.5,
    "summary": "2 clusters of 10 rows",
    "sizes": [4, 6],
}


def run(capsys, *arguments):
    """Exit code, stdout and stderr of a command."""
    with pytest.raises(SystemExit) as end:
        main.main(arguments)
    return end.value.code, *capsys.readouterr()


def answer(monkeypatch, result):
    """Let the demo end with this at once."""

    def run(k, seed):
        if isinstance(result, BaseException):
            raise result
        return {**result, "clusters": k, "seed": seed}

    monkeypatch.setattr(demo, "run", run)


def test_demo_through_click():
    outcome = CliRunner().invoke(main.shoal, ["demo", "-k", "3", "--seed", "1", "--json"])
    assert outcome.exit_code == 0
    result = json.loads(outcome.stdout)
    assert (result["rows"], result["clusters"], result["seed"]) == (10992, 3, 1)
    assert sum(result["sizes"]) == 10992
    assert outcome.stderr == ""


def test_demo_for_people(capsys, monkeypatch):
    answer(monkeypatch, RESULT)
    code, out, err = run(capsys, "demo", "-k", "4")
    assert code == 0
    assert "4, seed 0" in out
    assert "2 clusters of 10 rows" in out
    assert "6 4" in out
    assert err.startswith("Clustering handwritten digits")


def test_version_and_help(capsys):
    assert run(capsys, "--version") == (0, f"shoal, version {__version__}\n", "")
    code, out, err = run(capsys, "demo", "--help")
    assert (code, err) == (0, "")
    assert "--clusters" in out


def test_no_command_is_a_usage_error(capsys):
    code, out, err = run(capsys)
    assert (code, out) == (errors.USAGE, "")
    assert "Usage: shoal" in err


ROWS = len(load_pendigits()[0])


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["demo", "-k", "0"], "--clusters"),
        (["demo", "-k", "many"], "--clusters"),
        (["demo", "-k", str(ROWS + 1)], str(ROWS)),
        (["demo", "--seed", "-1"], "--seed"),
        (["demo", "--seed", str(2**32)], "--seed"),
        (["demo", "--fast"], "--fast"),
        (["demo", "rows.csv"], "rows.csv"),
        (["dance"], "dance"),
        (["demo", "a\nb\x1b[31m"], r"\x1b"),
    ],
)
def test_usage_errors(capsys, arguments, word):
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (errors.USAGE, "")
    assert err.startswith("shoal: ")
    assert word in err
    assert err.count("\n") == 1
    assert "\x1b" not in err


def test_a_cluster_for_every_row_is_no_usage_error(capsys, monkeypatch):
    answer(monkeypatch, RESULT)
    assert run(capsys, "demo", "--json", "-k", str(ROWS))[0] == 0


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (ValueError("X has a hole\nat row 3"), errors.BAD_DATA, "shoal: X has a hole at row 3"),
        (EOFError("cut short"), errors.BAD_DATA, "shoal: cut short"),
        (MemoryError(), errors.NO_ROOM, "shoal: out of memory: free some and run again"),
        (
            OSError(5, "Input/output error", "out/model.npz"),
            errors.NO_ROOM,
            "shoal: out/model.npz: Input/output error: check the disk and who may read and write there",
        ),
        (OSError(28, "No space left on device"), errors.NO_ROOM, "shoal: out of disk: [Errno 28] No space left on device"),
        (KeyError("x"), errors.INTERNAL, "shoal: internal error: KeyError: 'x' (--debug shows where)"),
        (KeyboardInterrupt(), 130, "shoal: stopped by SIGINT"),
        (click.ClickException("no such file"), errors.INTERNAL, "shoal: no such file"),
    ],
)
def test_errors_are_one_line_and_a_code(capsys, monkeypatch, error, code, message):
    answer(monkeypatch, error)
    found, out, err = run(capsys, "demo", "--json")
    assert (found, out, err.strip()) == (code, "", message)


@pytest.mark.parametrize("arguments", [["--debug", "demo", "--json"], ["demo", "--json", "--debug"]])
def test_debug_adds_the_traceback(capsys, monkeypatch, arguments):
    answer(monkeypatch, KeyError("x"))
    code, _, err = run(capsys, *arguments)
    assert code == errors.INTERNAL
    assert "Traceback" in err
    assert err.startswith("shoal: internal error")


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_closed_streams(capsys, monkeypatch, stream):
    answer(monkeypatch, RESULT)
    monkeypatch.setattr(sys, stream, None)
    assert run(capsys, "demo")[0] == 0
    getattr(sys, stream).close()


def test_as_a_module():
    """Once for real: with stdout closed, a usage error is told on stderr alone."""
    command = f"{sys.executable} -m shoal demo -k {ROWS + 1} >&-"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert done.returncode == errors.USAGE
    assert done.stderr.startswith("shoal: Invalid value")
    assert done.stderr.count("\n") == 1
