"""Tests of the main command: results on stdout, one line on stderr per error, exit codes."""

import io
import json
import os
import subprocess
import sys

import click
import numpy as np
import pytest
from click.testing import CliRunner

import shoal
from shoal import __version__
from shoal.cli import demo, errors, main, output
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
    """Return the exit code, stdout and stderr of a command."""
    with pytest.raises(SystemExit) as end:
        main.main(arguments)
    return end.value.code, *capsys.readouterr()


def answer(monkeypatch, result):
    """Replace the computation of the demo by this result or exception."""

    def run(k, seed):
        if isinstance(result, BaseException):
            raise result
        return {**result, "clusters": k, "seed": seed}

    monkeypatch.setattr(demo, "run", run)


def test_demo_json():
    outcome = CliRunner().invoke(main.shoal, ["demo", "-k", "3", "--seed", "1", "--json"])
    assert outcome.exit_code == 0
    result = json.loads(outcome.stdout)
    assert (result["rows"], result["clusters"], result["seed"]) == (10992, 3, 1)
    assert sum(result["sizes"]) == 10992
    assert outcome.stderr == ""


def test_demo_text(capsys, monkeypatch):
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
    assert "..." not in run(capsys, "--help")[1].partition("Commands:")[2]  # no summary is cut


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.001, "less than 0.01 s"),
        (0.1234, "about 0.12 s"),
        (59.6, "about 60 s"),
        (200, "about 3.3 min"),
        (5400, "about 1.5 h"),
        (1e7, "about 2,800 h"),
    ],
)
def test_format_estimate(seconds, text):
    assert output.format_estimate(seconds) == text


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


def test_one_cluster_per_row_is_allowed(capsys, monkeypatch):
    answer(monkeypatch, RESULT)
    assert run(capsys, "demo", "--json", "-k", str(ROWS))[0] == 0


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (ValueError("X has a hole\nat row 3"), errors.BAD_DATA, "shoal: X has a hole at row 3"),
        (EOFError("cut short"), errors.BAD_DATA, "shoal: cut short"),
        (MemoryError(), errors.NO_ROOM, "shoal: out of memory: free some and run the command again"),
        (
            OSError(5, "Input/output error", "out/model.npz"),
            errors.NO_ROOM,
            "shoal: out/model.npz: Input/output error: check the disk and the permissions",
        ),
        (
            OSError(28, "No space left on device"),
            errors.NO_ROOM,
            "shoal: out of disk space: [Errno 28] No space left on device",
        ),
        (KeyError("x"), errors.INTERNAL, "shoal: internal error: KeyError: 'x' (use --debug for the traceback)"),
        (KeyboardInterrupt(), 130, "shoal: stopped by SIGINT"),
        (click.ClickException("no such file"), errors.INTERNAL, "shoal: no such file"),
    ],
)
def test_error_message_and_exit_code(capsys, monkeypatch, error, code, message):
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


@pytest.mark.skipif(sys.platform == "win32", reason="shells of other systems close streams")
def test_files_never_get_the_descriptors_of_closed_streams():
    code = "import os; from shoal.cli.main import _prepare_streams; _prepare_streams(); os._exit(os.dup(0) < 3)"
    command = f'"{sys.executable}" -c "{code}"'
    for closed in ("", "<&-", ">&-", "2>&-", "<&- 2>&-", "<&- >&- 2>&-"):
        assert subprocess.run(["sh", "-c", f"{command} {closed}"], check=False).returncode == 0, closed


def test_text_that_the_encoding_of_stdout_does_not_have(monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    monkeypatch.setattr(sys, "stdout", stream)
    answer(monkeypatch, {**RESULT, "summary": "\u6f22"})
    with pytest.raises(SystemExit) as end:
        main.main(["demo"])
    assert end.value.code == 0
    assert b"\\u6f22" in stream.buffer.getvalue()


@pytest.mark.parametrize("command", ["export", "compare", "reproduce"])
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes")
def test_pipes_and_devices_are_not_replaced(capsys, tmp_path, command):
    model, rows = tmp_path / "model.npz", tmp_path / "rows.npy"
    np.save(rows, np.arange(8.0).reshape(4, 2))
    shoal.save(shoal.KMeans(2, random_state=0).fit(np.load(rows)), model)
    pipe = tmp_path / "claims.json"
    os.mkfifo(pipe)
    arguments = {
        "export": [model, "--to", "csv", "-o", pipe],
        "compare": [rows, "-k", 2, "--methods", "exact", "-o", pipe],
        "reproduce": ["nested", "-o", tmp_path],
    }
    code, _, err = run(capsys, command, *map(str, arguments[command]), "--force")
    assert (code, pipe.is_fifo()) == (errors.USAGE, True), err
    assert "is a pipe" in err


def test_python_m_shoal():
    """In a process of its own: with stdout closed, a usage error goes to stderr only."""
    command = f"{sys.executable} -m shoal demo -k {ROWS + 1} >&-"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == errors.USAGE
    assert done.stderr.startswith("shoal: Invalid value")
    assert done.stderr.count("\n") == 1
