"""`shoal reproduce`: repeat the experiments of the papers."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import click

from .errors import InvalidDataError
from .options import TIME, force_option, watch_options

PAPERS = ("convergence", "nested", "variance", "compressed", "spectral")
FILES = ("report.html", "claims.json")
SECONDS_BETWEEN_LINES = 10.0  # for one experiment


@click.command(short_help="Repeat the experiments of a paper.")
@click.argument("paper", type=click.Choice([*PAPERS, "all"]))
@click.option(
    "--quick/--full",
    default=True,
    help="Quick: some rows and seeds, within 3 minutes per paper. Full: all of them, which takes hours or days.",
)
@click.option("--time", "seconds", type=TIME, help="Start no further seed of an experiment after this time.")
@click.option(
    "--data",
    "folder",
    type=click.Path(exists=True, file_okay=False),
    help="Folder of the data sets.  [default: $SHOAL_DATA] Missing data are substituted, as the report states.",
)
@click.option("-o", "--output", type=click.Path(), required=True, help="Folder for report.html and claims.json.")
@force_option
@watch_options
def reproduce(
    paper: str, quick: bool, seconds: float | None, folder: str | None, output: str, force: bool, **options: Any
) -> None:
    """Repeat the experiments of a paper and compare figures, tables and claims with the published ones."""
    from .output import echo_stdout, reporting_write_errors, show, show_table, write_json
    from .progress import progress_reporter

    out = Path(output)
    _prepare(out, force)
    with progress_reporter(options["progress"], options["quiet"]) as reporter:
        from importlib import import_module

        from ..papers.data import InvalidDataSetError, Shelf
        from ..papers.run import FULL, QUICK, run_papers
        from ..papers.show import document, summary, write

        chosen = [import_module(f"shoal.papers.{name}").PAPER for name in PAPERS if paper in (name, "all")]
        effort = QUICK if quick else FULL
        if seconds is not None:
            effort = effort._replace(seconds=seconds)
        origin, reports = _origin(paper, effort.name), list[Any]()
        try:
            for report in run_papers(
                chosen, effort, Shelf(None if folder is None else Path(folder)), _progress_callback(reporter)
            ):
                if reports and reports[-1].paper is report.paper:
                    reports.pop()  # an earlier, partial version
                reports.append(report)  # written at once, because the next experiment may take hours
                with reporting_write_errors(out / FILES[0]):
                    write(out / FILES[0], reports, origin)
                claims = document(reports, effort.name, origin)
                write_json(out / FILES[1], claims)
        except InvalidDataSetError as error:
            raise InvalidDataError(str(error)) from error
    if options["as_json"]:
        show(claims, True, {})
        return
    rows = [[r.paper.key, v.claim.key, v.word] for r in reports for v in r.verdicts]
    show_table(["paper", "claim", "verdict"], rows)
    echo_stdout(f"{summary(reports)} See {out / FILES[0]}.")


def _prepare(out: Path, force: bool) -> None:
    """Create the output folder. Raise a usage error if files would be overwritten (unless forced)."""
    from .output import check_output_file, reporting_write_errors

    if out.is_file():
        raise click.UsageError(f"{out}: is a file: name a folder.")
    with reporting_write_errors(out):
        out.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        check_output_file(out / name, force)
    with reporting_write_errors(out):
        tempfile.TemporaryFile(dir=out).close()  # fail now if the folder is not writable, not after hours


def _progress_callback(reporter: Any) -> Any:
    """Return a function that reports the running experiment and the time left, with a limited number of text lines."""
    from .progress import BarProgress

    is_bar = isinstance(reporter, BarProgress)
    last: dict[str, Any] = {"name": "", "time": 0.0}

    def on_progress(name: str, done: float, left: float) -> None:
        if is_bar:
            reporter.bar.update(reporter.task, total=1.0, completed=done)
        if is_bar or name != last["name"] or time.monotonic() - last["time"] > SECONDS_BETWEEN_LINES:
            last.update(name=name, time=time.monotonic())
            words = f"{left / 60:.0f} min left" if left >= 90 else f"{left:.0f} s left"
            reporter.status(f"{words}, {name}", share=round(done, 4), seconds_left=round(left, 1))

    return on_progress


def _origin(paper: str, effort: str) -> Any:
    """Return the origin of the report: the command and the date."""
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
