"""Time budgets and interrupts by the real clock: generous limits, because other programs run, too."""

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
    begun = time.perf_counter()
    call(*arguments)
    return time.perf_counter() - begun


@pytest.mark.parametrize("layout", ["dense", "sparse"])
@pytest.mark.parametrize("method", MOVERS)
def test_a_budget_is_kept_but_for_the_labels(method, layout):
    """Seeding takes some ten times as long as this, and first steps as long as the labels."""
    name, options = METHODS[method]
    X = make_rows(layout, 20_000)
    with warnings.catch_warnings(action="ignore"):
        getattr(shoal, name)(1000, max_iter=3, time_budget=3.0, random_state=0, **options).fit(X[:4000])  # compiles
        model = getattr(shoal, name)(3000, time_budget=1.0, random_state=0, **options)
        took = min(seconds_of(model.fit, X) for _ in range(2))
    labels = seconds_of(model.predict, X)
    times = 10 if method == "SphericalMixture" else 2  # whose likelihood is another pass, in float64
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
    assert float(done.stdout) < 3  # where a block takes longer than that
