"""How tests run a command: in this process, as users call it."""

import json

import pytest

from shoal.cli import main


def run(capsys, *arguments):
    """Exit code, stdout and stderr of a command."""
    with pytest.raises(SystemExit) as end:
        main.main(list(map(str, arguments)))
    return end.value.code, *capsys.readouterr()


def result(capsys, *arguments):
    """What a command that goes well prints with --json, which is one document and nothing else."""
    code, out, err = run(capsys, *arguments, "--json")
    assert code == 0, err
    assert out.count("\n") == 1
    return json.loads(out)


def refused(capsys, code, *arguments):
    """The one line of a command that does not."""
    found, out, err = run(capsys, *arguments)
    assert (found, out) == (code, ""), err
    lines = [line for line in err.splitlines() if line.startswith("shoal: ")]
    assert len(lines) == 1, err
    return lines[0]
