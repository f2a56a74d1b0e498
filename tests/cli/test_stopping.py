"""Tests of SIGINT, SIGTERM and SIGKILL: runs end in time, and resumed runs give the result of an uninterrupted one."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from bench import signals
from shoal.cli import stopping
from tests.formats.writers import TIMES

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")


def test_resume_after_random_stops_and_kills(tmp_path):
    n_stops, n_kills = 4 * TIMES, 6 * TIMES
    outcome = signals.run(tmp_path, n_stops, n_kills)
    assert outcome["right"] == outcome["same after stops"] == outcome["stops"] == n_stops
    assert outcome["kept"] == outcome["stops"]
    assert outcome["seconds, p99"] < 3  # generous, for a busy machine
    assert outcome["kills"] == n_kills
    assert outcome["resumed"] > 0
    assert outcome["sound"] == outcome["lives"]
    assert outcome["same after kills"] == outcome["ends"] > 0


def spawn(code):
    """Start a process and wait until it prints `ready`. SIGINT is enabled: it is ignored in background jobs."""
    code = f"import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n{code}"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_commands_without_checkpoint_are_interrupted(number):
    code = """
import time
from shoal.cli import demo, main
def run(*arguments):
    print("ready", flush=True)
    time.sleep(60)
demo.run = run
main.main(["demo", "--json"])
"""
    with spawn(code) as process:
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (128 + number, "")
    assert err.strip() == f"shoal: stopped by {signal.Signals(number).name}"


@pytest.mark.parametrize(("writing", "least", "most"), [("False", 0, stopping.GRACE_SECONDS + 2), ("time.time() < end", 1, 9)])
def test_forced_exit_after_grace_period(writing, least, most):
    """A long step is abandoned, a file being written is not. A second signal ends the process at once."""
    code = f"""
import time
from shoal.cli.stopping import handle_signals
end = time.time() + 1.5
with handle_signals() as stopper:
    stopper.request_stop = lambda: None
    stopper.is_writing = lambda: {writing}
    print("ready", flush=True)
    time.sleep(60)
"""
    with spawn(code) as process:
        started = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 143
    assert least < time.monotonic() - started < most
    if least:
        with spawn(code) as process:
            process.send_signal(signal.SIGTERM)
            time.sleep(0.2)
            process.send_signal(signal.SIGINT)
            started = time.monotonic()
            assert process.wait(60) == 143
        assert time.monotonic() - started < 1.2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ignored_signals_stay_ignored(number):
    before = signal.signal(number, signal.SIG_IGN)
    try:
        with stopping.handle_signals():
            assert signal.getsignal(number) is signal.SIG_IGN
            os.kill(os.getpid(), number)
    finally:
        signal.signal(number, before)


def test_two_processes_with_the_same_output(tmp_path):
    np.save(tmp_path / "rows.npy", np.random.default_rng(0).normal(size=(3000, 4)).astype(np.float32))
    fit = [sys.executable, "-m", "shoal", "fit", "rows.npy", "-k", "5", "-q", "--no-report", "--json", "-o", "out"]
    both = [subprocess.Popen(fit, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [process.communicate(timeout=120) for process in both]
    assert sorted(process.returncode for process in both) == [0, 2], outputs
    (line,) = (err for process, (_, err) in zip(both, outputs, strict=True) if process.returncode)
    assert "another process is using this folder" in line or "is not empty" in line
    assert len(np.load(tmp_path / "out/labels.npy")) == 3000
