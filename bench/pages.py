"""Generate the tables of docs/scale.md, docs/speed.md and docs/papers.md from the tracked results (`python -m bench page`)."""

from __future__ import annotations

import json
import re
from pathlib import Path

from . import map_page
from .results import FOLDER, by_problem, escaped, made_text, read, tables

PAGES = Path(__file__).parents[1] / "docs"
PLACE = re.compile(r"(<!-- (bench|claims) (\w+)(?:: (.+?))? -->\n).*?(<!-- end -->)", re.DOTALL)
HEAD = "| claim | published | here | verdict |\n|---|---|---|---|\n"


def filled(text: str, folder: Path = FOLDER) -> str:
    """Return the page with all marked tables replaced; a table without a tracked result stays unchanged."""

    def table(place: re.Match[str]) -> str:
        found = _results(folder, place[3], place[4]) if place[2] == "bench" else _claims(folder, place[3])
        return f"{place[1]}{found}\n{place[5]}" if found else place[0]

    return PLACE.sub(table, text)


def _results(folder: Path, suite: str, problems: str | None) -> str:
    stored = by_problem(folder / f"{suite}.json")
    if problems is None:  # the page of a whole suite; so far only that of `map`
        return map_page.page([*stored.values()]) if stored else ""
    entries = [stored[name] for name in problems.split("; ") if name in stored]
    return "\n\n".join([*tables(entries), made_text(entries, versions=False)]) if entries else ""


def _claims(folder: Path, paper: str) -> str:
    """Return the table of claims_<paper>.json, the claims.json of a full run of `shoal reproduce`."""
    path = folder / f"claims_{paper}.json"
    if not path.exists():
        return ""
    stored = json.loads(path.read_text())
    (found,) = stored["papers"]
    rows = [
        f"| {escaped(claim['claim'])} ({escaped(claim['where'])}) | {escaped(claim['published'])} "
        f"| {escaped(claim['reason']).replace('; ', '<br>')} | **{claim['verdict']}** |"
        for claim in found["claims"]
    ]
    notes = "".join(f"- {note}\n" for note in found["notes"])
    return f"`{stored['command']}` on {stored['date'][:10]}.\n\n{notes}\n{HEAD}" + "\n".join(rows)


def write() -> None:
    map_page.write_picture(FOLDER, read)
    for page in PAGES.glob("*.md"):
        page.write_text(filled(page.read_text()))
