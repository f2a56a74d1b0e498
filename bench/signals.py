"""Command-line fits interrupted or killed at random moments: time to exit, and bitwise equality after resuming.

`python -m bench.signals STOPS KILLS [SEED]` prints the results as a line of JSON. Each run of a fit is a fork of this process,
which has loaded all code, so that runs start fast.
"""

from __future__ import annotations

import contextlib
import faulthandler
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .measure import Lab, environment
from .results import Entry
from .suites import entry_of

FIT = ["fit", "rows.npy", "-k", "50", "--method", "lloyd", "--init", "random", "--set", "tol=0", "--set", "max_iter=20"]
FIT += ["--set", "n_init=2", "--threads", "2", "--standardize", "--progress", "json", "-o", "out", "--force"]
OUT = Path("out")
MAX_RUN_SECONDS = 60  # one run takes less than 5 s on a busy machine


class StopPoint(NamedTuple):
    """When to end a run: by a signal after some seconds, or by a kill at the n-th sync or renaming of a file."""

    number: int = 0
    after: float = 0.0
    write: int = 0


NEVER = StopPoint()


class Ended(NamedTuple):
    code: int  # negative signal number if a signal ended the process
    seconds: float  # duration of the run or, if a signal was sent, the time from the signal to the end
    said: str


def _run_child(words: list[str], stop_point: StopPoint, often: bool) -> int:
    """Run the command in a forked process."""
    from shoal.cli import main, run
    from shoal.formats import checkpoint

    if often:  # write a checkpoint after every step
        run.MIN_CHECKPOINT_SECONDS, checkpoint.SHARE = 0.0, 1e9
    signal.signal(signal.SIGINT, signal.default_int_handler)  # background processes may ignore SIGINT
    calls = [0]

    def counted(call: Any) -> Any:
        def at(*arguments: Any) -> Any:
            calls[0] += 1
            if calls[0] == stop_point.write:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments)

        return at

    os.fsync, os.replace = counted(os.fsync), counted(os.replace)
    try:
        main.main(words)
    except SystemExit as end:
        return int(end.code or 0)
    return 99


def run_once(words: list[str], stop_point: StopPoint = NEVER, often: bool = False) -> Ended:
    began = time.perf_counter()
    with open("said", "w+b") as said:
        child = os.fork()
        if not child:
            code = 98
            try:
                for stream in (1, 2):
                    os.dup2(said.fileno(), stream)
                faulthandler.dump_traceback_later(MAX_RUN_SECONDS, exit=True, file=2)  # a run that hangs says where, and ends
                code = _run_child(words, stop_point, often)
                sys.stderr.flush()
            finally:
                os._exit(code)
        if stop_point.number:
            time.sleep(stop_point.after)
            os.kill(child, stop_point.number)
            began = time.perf_counter()
        _, status = os.waitpid(child, 0)
        seconds = time.perf_counter() - began
        said.seek(0)
        return Ended(os.waitstatus_to_exitcode(status), seconds, said.read().decode())


def digest() -> str:
    """Return a digest of all results of a fit except times."""
    import shoal

    model = shoal.load(OUT / "model.npz")
    hasher = hashlib.sha256(np.ascontiguousarray(model.cluster_centers_).tobytes() + (OUT / "labels.npy").read_bytes())
    hasher.update(repr((model.inertia_, model.n_iter_, model.stop_reason_)).encode())
    return hasher.hexdigest()


def is_sound(folder: Path = OUT) -> bool:
    """Return whether all result files can be read, and all other files are temporary ones."""
    from shoal.cli.folder import FILES, LOCK
    from shoal.cli.run_record import read_run_record
    from shoal.formats.archive import read

    names = {path.name for path in folder.iterdir()} if folder.exists() else set()
    if "run.json" in names:
        read_run_record(folder)
    for kind in {"checkpoint", "model"} & {name.removesuffix(".npz") for name in names}:
        read(folder / f"{kind}.npz", kind)
    if "labels.npy" in names:
        np.load(folder / "labels.npy", allow_pickle=False)
    whole = "report.html" not in names or (folder / "report.html").read_text().rstrip().endswith("</html>")
    return whole and all(name in (*FILES, LOCK) or name.endswith(".tmp") for name in names)


def status() -> str:
    """Return the status of the run: "running" until all its files exist, "" before it starts."""
    from shoal.cli.run_record import read_run_record

    return str(read_run_record(OUT)[0]["status"]) if (OUT / "run.json").exists() else ""


def _next() -> list[str]:
    """Resume the run, if it has started."""
    return ["resume", "out", "-q"] if (OUT / "run.json").exists() else FIT


def stops(count: int, whole: float, expected: str, luck: random.Random) -> dict[str, Any]:
    """Send SIGINT and SIGTERM alternately and resume each interrupted fit."""
    seconds, right, kept, same = [], 0, 0, 0
    for i in range(count):
        shutil.rmtree(OUT, ignore_errors=True)
        number = (signal.SIGINT, signal.SIGTERM)[i % 2]
        ended = run_once(FIT, StopPoint(number, luck.uniform(0.03, whole)))
        over = ended.code == 0 or status() == "done"  # before the signal arrived
        right += (over or (ended.code == 128 + number and "stopped by SIG" in ended.said)) and is_sound()
        kept += status() != "running" or '"step"' not in ended.said or (OUT / "checkpoint.npz").exists()
        seconds.append(ended.seconds)
        if status() != "done":
            last = run_once(_next())
            assert last.code == 0, last.said
        same += digest() == expected
    worst = float(np.quantile(seconds, 0.99)) if seconds else 0.0
    return {"stops": count, "right": right, "kept": kept, "same after stops": same, "seconds, p99": worst}


def kills(count: int, whole: float, writes: int, expected: str, luck: random.Random) -> dict[str, Any]:
    """Kill fits at random moments, half of them during a write, and resume each until it ends."""
    killed = resumed = ends = same = sound = lives = 0
    shutil.rmtree(OUT, ignore_errors=True)
    while killed < count or not ends:
        lives += 1
        stop_point = (
            StopPoint(write=luck.randint(1, writes)) if lives % 2 else StopPoint(signal.SIGKILL, luck.uniform(0, whole))
        )
        resumed += (OUT / "checkpoint.npz").exists()
        ended = run_once(_next(), stop_point if killed < count else NEVER, often=True)
        killed += ended.code == -signal.SIGKILL
        sound += is_sound()
        if ended.code == 0:
            ends, same = ends + 1, same + (digest() == expected)
            shutil.rmtree(OUT)
        elif ended.code != -signal.SIGKILL:
            raise SystemExit(ended.said)
    return {"kills": killed, "lives": lives, "resumed": resumed, "ends": ends, "same after kills": same, "sound": sound}


def main(count_stops: int, count_kills: int, seed: int = 0) -> None:
    luck, rng = random.Random(seed), np.random.default_rng(0)
    np.save("rows.npy", rng.normal(size=(6000, 8)).astype(np.float32))
    import shoal.cli.main

    with contextlib.suppress(SystemExit):  # load all code
        shoal.cli.main.main([*FIT, "--json"])
    whole = run_once(FIT)
    assert whole.code == 0, whole.said
    expected = digest()
    counts = stops(count_stops, 1.1 * whole.seconds, expected, luck)
    often = run_once(FIT, often=True)
    writes = 2 * (sum('"step"' in line for line in often.said.splitlines()) + 5)
    counts |= kills(count_kills, 1.1 * often.seconds, writes, expected, luck)
    print(json.dumps(counts), flush=True)


def run(folder: Path, count_stops: int, count_kills: int) -> dict[str, Any]:
    """Run `main` in a new process, because forks of this one would lack its threads."""
    command = [sys.executable, "-m", "bench.signals", str(count_stops), str(count_kills)]
    done = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def signals(lab: Lab, only: Sequence[str]) -> Iterator[Entry]:
    """A command-line fit, interrupted 100 times and killed 200 times at random moments."""
    if os.name != "posix":
        lab.leave_out("signals: only POSIX has them")
        return
    with tempfile.TemporaryDirectory(dir=lab.folder) as folder:
        counts = run(Path(folder), *((4, 6) if lab.quick else (100, 200)))
    pairs = (
        ("stops", "right"),
        ("stops", "same after stops"),
        ("stops", "kept"),
        ("lives", "sound"),
        ("ends", "same after kills"),
    )
    wrong = sum(counts[all_] - counts[good] for all_, good in pairs)
    figures = [
        {
            "what": "lives that ended wrong or kept nothing, fits of other bits, files that can't be read",
            "value": wrong,
            "limit": 0,
        },
        {"what": "seconds from a signal to the end, 99th percentile", "value": counts["seconds, p99"], "limit": 1.0},
    ]
    measure = (
        "SIGINT and SIGTERM, then SIGKILL (half of them inside a write), at random moments of `shoal fit` and `shoal resume`, "
        "until each fit has come to its end. Right: exit code 130 or 143, one line, files that can be read. Kept: with a "
        "checkpoint, if a step was made and not all was done. Same: to the last bit what an undisturbed fit gives."
    )
    yield entry_of(lab, "signals", measure, [counts], figures)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
