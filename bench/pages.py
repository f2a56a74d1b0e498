"""Tables of docs/scale.md: `python -m bench page` makes them anew from the results that are kept."""

from __future__ import annotations

import re
from pathlib import Path

from .results import FOLDER, by_problem, made_text, tables

PAGE = Path(__file__).parents[1] / "docs" / "scale.md"
PLACE = re.compile(r"(<!-- bench (\w+): (.+?) -->\n).*?(<!-- end -->)", re.DOTALL)


def filled(text: str, folder: Path = FOLDER) -> str:
    """The page with a table in each marked place; where nothing is kept yet, it stays as it is."""

    def table(place: re.Match[str]) -> str:
        kept = by_problem(folder / f"{place[2]}.json")
        entries = [kept[name] for name in place[3].split("; ") if name in kept]
        return (
            place[1] + "\n\n".join([*tables(entries), made_text(entries, versions=False)]) + f"\n{place[4]}"
            if entries
            else place[0]
        )

    return PLACE.sub(table, text)


def write() -> None:
    PAGE.write_text(filled(PAGE.read_text()))
