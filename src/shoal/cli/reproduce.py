"""`shoal reproduce`: the papers' experiments, run again."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import click

from .errors import BadData
from .options import TIME, force_option, watch_options

PAPERS = ("convergence", "nested", "variance", "compressed", "spectral")
FILES = ("report.html", "claims.json")
EVERY = 10.0  # seconds between lines on one experiment


@click.command()
@click.argument("paper", type=click.Choice([*PAPERS, "all"]))
@click.option(
    "--quick/--full",
    default=True,
    help="Some rows and seeds, within 3 minutes a paper; or all rows and seeds, which takes hours or, for some, days.",
)
@click.option("--time", "seconds", type=TIME, help="Begin no further seed of an experiment after so long.")
@click.option(
    "--data",
    "folder",
    type=click.Path(exists=True, file_okay=False),
    help="Folder of the data sets; else that of SHOAL_DATA. What is not there is replaced, and the report says by what.",
)
@click.option("-o", "--output", type=click.Path(), required=True, help="Folder for report.html and claims.json.")
@force_option
@watch_options
def reproduce(
    paper: str, quick: bool, seconds: float | None, folder: str | None, output: str, force: bool, **settings: Any
) -> None:
    """Run a paper's experiments again: its figures and tables beside ours, and a verdict on each claim."""
    from .output import saving, show, show_table, tell, write_json
    from .progress import watching

    out = Path(output)
    _prepare(out, force)
    with watching(settings["progress"], settings["quiet"]) as watch:
        from importlib import import_module

        from ..papers.data import Shelf, Unreadable
        from ..papers.run import FULL, QUICK, carry_out
        from ..papers.show import document, summary, write

        chosen = [import_module(f"shoal.papers.{name}").PAPER for name in PAPERS if paper in (name, "all")]
        effort = QUICK if quick else FULL
        if seconds is not None:
            effort = effort._replace(seconds=seconds)
        origin, reports = _origin(paper, effort.name), list[Any]()
        try:
            for report in carry_out(chosen, effort, Shelf(None if folder is None else Path(folder)), _teller(watch)):
                if reports and reports[-1].paper is report.paper:
                    reports.pop()  # it knew less
                reports.append(report)  # and written at once: the next experiment may take hours
                with saving(out / FILES[0]):
                    write(out / FILES[0], reports, origin)
                told = document(reports, effort.name, origin)
                write_json(out / FILES[1], told)
        except Unreadable as error:
            raise BadData(str(error)) from error
    if settings["as_json"]:
        show(told, True, {})
        return
    rows = [[r.paper.key, v.claim.key, v.word] for r in reports for v in r.verdicts]
    show_table(["paper", "claim", "verdict"], rows)
    tell(f"{summary(reports)} See {out / FILES[0]}.")


def _prepare(out: Path, force: bool) -> None:
    """A folder in which nothing is replaced unasked."""
    from .output import saving

    if out.is_file():
        raise click.UsageError(f"{out}: is a file: name a folder.")
    there = [name for name in FILES if (out / name).exists()]
    if there and (out / there[0]).is_dir():
        raise click.UsageError(f"{out / there[0]}: is a folder: name another folder for the results.")
    if there and not force:
        raise click.UsageError(f"{out / there[0]}: is there already: name another folder, or say --force to replace it.")
    with saving(out):
        out.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=out).close()  # better now than after hours


def _teller(watch: Any) -> Any:
    """Tells the watcher which experiment runs, and how long is left; lines of text not too often."""
    from .progress import Bar

    bar = isinstance(watch, Bar)
    last: dict[str, Any] = {"name": "", "time": 0.0}

    def told(name: str, done: float, left: float) -> None:
        if bar:
            watch.bar.update(watch.task, total=1.0, completed=done)
        if bar or name != last["name"] or time.monotonic() - last["time"] > EVERY:
            last.update(name=name, time=time.monotonic())
            words = f"{left / 60:.0f} min left" if left >= 90 else f"{left:.0f} s left"
            watch.note(f"{words}, {name}", share=round(done, 4), seconds_left=round(left, 1))

    return told


def _origin(paper: str, effort: str) -> Any:
    import datetime
    import shlex
    import sys

    from ..report import Origin

    return Origin(
        title="Five papers, run again" if paper == "all" else "A paper, run again",
        command=shlex.join(["shoal", *sys.argv[1:]]),
        seed=0,
        date=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        parameters={"effort": effort},
    )
