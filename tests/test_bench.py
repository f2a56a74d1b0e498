"""The benchmarks run, on a few thousand rows, with whatever other libraries are there."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    ("suites", "told"),
    [
        (["lloyd"], ["shoal-lloyd against sklearn"]),
        (
            ["nmi", "speed", "scaling", "readings"],
            ["the paper's NMI less ours", "most NMI of all", "MiniBatchSpectral against sklearn-arpack", "slope"],
        ),
        (
            ["bigfile", "faults", "--repeats", "1"],
            ["peak MB under a limit", "times that auto read the file", "Parquet's time", "checkpoint: harmed"],
        ),
        (["scaleout", "--only", "overhead"], ["a step on workers"]),
    ],
    ids=["kmeans", "spectral", "files", "dask"],
)
def test_a_tiny_benchmark(suites, told):
    command = [sys.executable, "-m", "bench", *suites, "--quick"]
    done = subprocess.run(command, cwd=Path(__file__).parent.parent, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    for words in told:
        assert words in done.stdout, done.stdout
