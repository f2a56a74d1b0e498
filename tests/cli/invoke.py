"""Run a command in this process, as users call it."""

import json

import pytest

from shoal.cli import main


def run(capsys, *arguments):
    """Return the exit code, stdout and stderr of a command."""
    with pytest.raises(SystemExit) as end:
        main.main(list(map(str, arguments)))
    return end.value.code, *capsys.readouterr()


def result(capsys, *arguments):
    """Return the JSON document that a successful command prints with --json."""
    code, out, err = run(capsys, *arguments, "--json")
    assert code == 0, err
    assert out.count("\n") == 1
    return json.loads(out)


def refused(capsys, code, *arguments):
    """Return the only error line of a command that fails with this exit code."""
    found, out, err = run(capsys, *arguments)
    assert (found, out) == (code, ""), err
    lines = [line for line in err.splitlines() if line.startswith("shoal: ")]
    assert len(lines) == 1, err
    return lines[0]
