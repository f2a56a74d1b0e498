"""Time budgets and interrupts with the real clock; limits are generous because of other processes."""

import os
import subprocess
import sys
import time
import warnings

import pytest

import shoal
from bench.budgets import METHODS, make_rows

pytestmark = pytest.mark.slow
MOVERS = [name for name in METHODS if "Spectral" not in name]


def seconds_of(call, *arguments):
    started = time.perf_counter()
    call(*arguments)
    return time.perf_counter() - started


@pytest.mark.parametrize("layout", ["dense", "sparse"])
@pytest.mark.parametrize("method", MOVERS)
def test_fits_end_within_the_budget_and_the_time_for_labels(method, layout):
    """Initialization would take about ten times the budget, and a first step as long as the labels."""
    name, options = METHODS[method]
    X = make_rows(layout, 20_000)
    with warnings.catch_warnings(action="ignore"):
        getattr(shoal, name)(1000, max_iter=3, time_budget=3.0, random_state=0, **options).fit(X[:4000])  # compile kernels
        model = getattr(shoal, name)(3000, time_budget=1.0, random_state=0, **options)
        took = min(seconds_of(model.fit, X) for _ in range(2))
    labels = seconds_of(model.predict, X)
    times = 10 if method == "SphericalMixture" else 2  # its likelihood needs another pass in float64
    assert took < 1.0 + 2.0 + times * labels


INTERRUPTED = """
import signal, threading, os, time, numpy as np, shoal
signal.signal(signal.SIGINT, signal.default_int_handler)
X = np.random.default_rng(0).normal(size=(30_000, 600)).astype(np.float32)
shoal.KMeans(100, algorithm="{algorithm}", init=X[:100], max_iter=2).fit(X[:3000])
sent = []
def interrupt():
    sent.append(time.perf_counter())
    os.kill(os.getpid(), signal.SIGINT)
threading.Timer({after}, interrupt).start()
try:
    shoal.KMeans(15_000, algorithm="{algorithm}", init={init}, random_state=0).fit(X)
except KeyboardInterrupt:
    print(time.perf_counter() - sent[0])
"""


@pytest.mark.skipif(os.name != "posix", reason="signals as POSIX has them")
@pytest.mark.parametrize("init", ["X[:15_000]", "'k-means++'", "'k-means||'"])
@pytest.mark.parametrize("algorithm", ["lloyd", "auto"])
@pytest.mark.parametrize("after", [0.3, 1.5])
def test_an_interrupt_ends_a_fit(init, algorithm, after):
    code = INTERRUPTED.format(init=init, algorithm=algorithm, after=after)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=200)
    assert float(done.stdout) < 3  # a single block would take longer
