"""Signals and kills: the run ends in time, and resume gives what an undisturbed run gives."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from bench import signals
from shoal.cli import stopping

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals as POSIX has them")


def test_stops_and_kills_at_random_moments(tmp_path):
    told = signals.run(tmp_path, 6, 10)
    assert told["right"] == told["same after stops"] == told["stops"] == 6
    assert told["kept"] == told["stops"]
    assert told["seconds, p99"] < 3  # of a machine that has other things to do, too
    assert told["kills"] == 10
    assert told["resumed"] > 0
    assert told["sound"] == told["lives"]
    assert told["same after kills"] == told["ends"] > 0


def spawn(code):
    """A process that says when it is ready. SIGINT may be ignored where tests run in the background; not there."""
    code = f"import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n{code}"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_commands_that_keep_nothing_are_interrupted(number):
    code = """
import time
from shoal.cli import demo, main
def run(k, seed):
    print("ready", flush=True)
    time.sleep(60)
demo.run = run
main.main(["demo", "--json"])
"""
    with spawn(code) as process:
        process.send_signal(number)
        out, err = process.communicate()
    assert (process.returncode, out) == (128 + number, "")
    assert err.strip() == f"shoal: stopped by {signal.Signals(number).name}"


@pytest.mark.parametrize(("writing", "least", "most"), [("False", 0, stopping.GRACE + 2), ("time.time() < end", 1, 9)])
def test_who_does_not_listen_is_left(writing, least, most):
    """A step that takes long is not waited for; a file that is half written is. A second signal waits for nothing."""
    code = f"""
import time
from shoal.cli.stopping import stopping
end = time.time() + 1.5
with stopping() as stopper:
    stopper.ask = lambda: None
    stopper.is_writing = lambda: {writing}
    print("ready", flush=True)
    time.sleep(60)
"""
    with spawn(code) as process:
        begun = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 143
    assert least < time.monotonic() - begun < most
    if least:
        with spawn(code) as process:
            process.send_signal(signal.SIGTERM)
            time.sleep(0.2)
            process.send_signal(signal.SIGINT)
            begun = time.monotonic()
            assert process.wait() == 143
        assert time.monotonic() - begun < 1.2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ignored_signals_stay_ignored(number):
    before = signal.signal(number, signal.SIG_IGN)
    try:
        with stopping.stopping():
            assert signal.getsignal(number) is signal.SIG_IGN
            os.kill(os.getpid(), number)
    finally:
        signal.signal(number, before)


def test_two_processes_with_one_output(tmp_path):
    np.save(tmp_path / "rows.npy", np.random.default_rng(0).normal(size=(3000, 4)).astype(np.float32))
    fit = [sys.executable, "-m", "shoal", "fit", "rows.npy", "-k", "5", "-q", "--no-report", "--json", "-o", "out"]
    both = [subprocess.Popen(fit, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate() for process in both]
    assert sorted(process.returncode for process in both) == [0, 2], said
    (line,) = (err for process, (_, err) in zip(both, said, strict=True) if process.returncode)
    assert "another process is at work" in line or "is not empty" in line
    assert len(np.load(tmp_path / "out/labels.npy")) == 3000
