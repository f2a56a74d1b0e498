"""Changed models and checkpoints with recomputed hashes are rejected or harmless."""

import json
import os
import subprocess
import sys

import pytest

from tests.formats.resealed import MODELS


def tried(share, *kinds, **environment):
    command = [sys.executable, "-m", "tests.formats.resealed", str(share), *kinds]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1000, env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr[-2000:]
    *failures, counts = map(json.loads, done.stdout.splitlines())
    assert failures == []
    return counts["tried"]


def test_some_changes():
    assert tried(0.01, "MiniBatchKMeans", "CompressedKMeans", "LandmarkSpectral") > 100


@pytest.mark.slow
@pytest.mark.parametrize("kind", MODELS)
def test_every_change(kind, tmp_path_factory):
    """Runs with bounds checks in kernels, for which they are compiled again."""
    cache = tmp_path_factory.getbasetemp().parent / "bounds"
    assert tried(1.0, kind, NUMBA_BOUNDSCHECK="1", NUMBA_CACHE_DIR=str(cache)) > 100
