"""Command line: run suites and store their results (`table` prints stored results, `page` updates the tables in docs)."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from . import pages
from .bigfile import bigfile
from .calibration import calibration
from .compressed import accuracy, codes_memory, compress, popcount
from .faults import faults
from .map import speed_map
from .measure import Lab
from .peaks import peaks
from .plan import plan
from .resources import many_rows, memory, startup
from .results import FOLDER, keep, made, read, render
from .scaleout import scaleout
from .signals import signals
from .spectral import nmi, readings, scaling, speed
from .stochastic import ends, reach, stream, variance
from .suites import Suite, algorithms, converge, franti, lloyd, seeding, ten

_ALL = (
    *(lloyd, ten, converge, reach, variance, stream, ends, popcount, compress, accuracy, seeding, memory, codes_memory),
    *(startup, franti, speed, scaling),
)
DEFAULT: dict[str, Suite] = {suite.__name__: suite for suite in _ALL}
SUITES: dict[str, Suite] = {
    **DEFAULT,
    "map": speed_map,
    "calibration": calibration,
    "algorithms": algorithms,
    "many_rows": many_rows,
    "nmi": nmi,
    "readings": readings,
    "bigfile": bigfile,
    "peaks": peaks,
    "faults": faults,
    "signals": signals,
    "scaleout": scaleout,
    "plan": plan,
}


def parse(words: Sequence[str]) -> argparse.Namespace:
    what = "; ".join(f"{name}: {(suite.__doc__ or '').splitlines()[0]}" for name, suite in SUITES.items())
    parser = argparse.ArgumentParser(
        "python -m bench", description=f"{what} 'table' prints the stored results, 'page' updates the tables in docs."
    )
    parser.add_argument("suites", nargs="*", metavar="suite", help=f"default: {' '.join(DEFAULT)}; quick: all")
    parser.add_argument("--repeats", type=int, default=3, help="rounds of every timed comparison")
    parser.add_argument("--quick", action="store_true", help="a tiny configuration of everything; kept only with --out")
    parser.add_argument("--only", action="append", default=[], metavar="problem", help="problems whose name holds this")
    parser.add_argument("--out", type=Path, help="folder of the results (default: bench/results)")
    options = parser.parse_args(words)
    unknown = [name for name in options.suites if name not in SUITES and options.suites not in (["table"], ["page"])]
    if unknown:
        parser.error(f"no suite {', '.join(unknown)}: choose from {', '.join(SUITES)}")
    return options


def main(words: Sequence[str]) -> int:
    options = parse(words)
    folder = options.out or FOLDER
    if options.suites == ["table"]:
        paths = [folder / f"{name}.json" for name in SUITES]
        print("\n".join(render(path.stem, read(path)) for path in paths if path.exists()))
        return 0
    if options.suites == ["page"]:
        pages.write()
        return 0
    command = " ".join(["python -m bench", *words])
    with Lab(options.repeats, options.quick) as lab:
        for name in options.suites or (SUITES if options.quick else DEFAULT):
            lab.say(f"== {name}")
            entries = []
            for entry in SUITES[name](lab, options.only):
                entries.append({**entry, "made": made(command)})
                if options.out or not options.quick:
                    keep(folder, name, entries[-1])
            lab.left_out.clear()
            if entries:
                print(render(name, entries), flush=True)
        return 1 if lab.failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
