"""Models and checkpoints that were changed by somebody who knows how to compute their hashes."""

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


def test_changes_are_refused_or_harmless():
    assert tried(0.01, "MiniBatchKMeans", "CompressedKMeans", "LandmarkSpectral") > 100


@pytest.mark.slow
@pytest.mark.parametrize("kind", MODELS)
def test_every_change_is_refused_or_harmless(kind, tmp_path_factory):
    """With checks of all array bounds, for which kernels are compiled once more."""
    cache = tmp_path_factory.getbasetemp().parent / "bounds"
    assert tried(1.0, kind, NUMBA_BOUNDSCHECK="1", NUMBA_CACHE_DIR=str(cache)) > 100
