"""The benchmarks run, on a few thousand rows, with whatever other libraries are there."""

import subprocess
import sys
from pathlib import Path


def test_a_tiny_benchmark():
    command = [sys.executable, "-m", "bench", "lloyd", "--quick"]
    done = subprocess.run(command, cwd=Path(__file__).parent.parent, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert "shoal-lloyd against sklearn" in done.stdout, done.stdout
