"""Run the commands of the README."""

import re
import shlex
from pathlib import Path

import numpy as np

from shoal.cli.methods import REGISTRY
from shoal.datasets import load_pendigits
from tests.cli.invoke import run

README = Path(__file__).parents[2].joinpath("README.md").read_text()


def test_readme_commands(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("digits.npy", load_pendigits()[0][:2000])
    commands = re.findall(r"^\$ shoal (.*)$", README, re.MULTILINE)
    assert {words.split()[0] for words in commands} == {"inspect", "fit", "predict", "compare", "sweep", "export", "resume"}
    for words in commands:
        code, out, err = run(capsys, *shlex.split(words, comments=True))
        assert (code, bool(out)) == (0, True), err
    assert f"one of {len(REGISTRY)} ways" in README
