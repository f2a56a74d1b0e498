"""Describe a table for `shoal inspect`: its columns, which of them a fit would use, and a command to paste."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .data import dominant_columns
from .settings import RowSettings

MAX_SHOWN = 60  # columns in the printed table; --json has all
MAX_NAME, MAX_VALUES = 24, 44  # characters
DEFAULT_CLUSTERS = 4  # in the suggested command
OPTIONS = ("exclude", "categorical", "dates", "decimal", "thousands", "encoding", "delimiter", "id_column")


def describe_table(path: str, settings: RowSettings, clusters: int | None) -> dict[str, Any] | None:
    """Return the facts about a table; None for rows without named columns, and without pyarrow."""
    from ..formats.options import Options
    from ..formats.readers import table_files
    from .errors import reporting_open_errors, with_option_names

    files = table_files(Path(path))
    if not files:
        return None
    with reporting_open_errors(path):
        try:
            from ..formats.mixed import survey

            found = survey(Path(path), files, Options(**settings.open_rows_arguments()))
        except ImportError:
            return None
    if found is None:
        return None
    used = [profile.name for profile in found.use.columns]
    total = sum(profile.variance for profile in found.use.columns) or 1.0
    columns = []
    for profile in found.profiles:
        is_used = profile.name in used
        facts = {name: value for name, value in profile._asdict().items() if name not in ("n", "note", "levels", "invalid")}
        why = "" if is_used else with_option_names(found.use.left_out.get(profile.name, "it is not listed"))
        columns.append({**facts, "share": profile.variance / total if is_used else None, "used": is_used, "why": why})
    problem = with_option_names(found.problem.removeprefix(f"{path}: "))
    result = {"kind": "data", "path": path, "rows": found.profiles[0].n, "names": used, "table": columns, "problem": problem}
    return {**result, "command": _command(path, settings, columns, clusters or DEFAULT_CLUSTERS)}


def _command(path: str, settings: RowSettings, columns: Sequence[Mapping[str, Any]], clusters: int) -> str:
    """Return the command of a fit that suits the table."""
    words = ["shoal", "fit", path, "-k", str(clusters), "-o", "out"]
    for name in OPTIONS:
        value = getattr(settings, name)
        if value is not None:
            words += [f"--{name.replace('_', '-')}", ",".join(map(str, value)) if isinstance(value, list) else str(value)]
    if any(column["kind"] == "notation" for column in columns) and settings.decimal is None:
        words += ["--decimal", ","]
        if any(re.search(r"[0-9][.][0-9]{3}(,|$)", value) for c in columns if c["kind"] == "notation" for value, _ in c["top"]):
            words += ["--thousands", "."]
    used = [column for column in columns if column["used"]]
    if any(column["missing"] for column in used):
        words += ["--missing", settings.missing if settings.missing not in (None, "error") else "median"]
    if dominant_columns({column["name"]: column["share"] for column in used}):
        words.append("--standardize")
    return shlex.join(words)


def print_table(result: Mapping[str, Any]) -> None:
    """Print the columns, which of them are used, and the command."""
    from .output import echo_stdout, format_count, show, show_table

    columns = result["table"]
    head = ["column", "type", "missing", "distinct", "values", "variance", "used"]
    show_table(head, [_cells(column, result["rows"]) for column in columns[:MAX_SHOWN]])
    if len(columns) > MAX_SHOWN:
        echo_stdout(f"... and {format_count(len(columns) - MAX_SHOWN, 'column')} more (--json shows all)")
    echo_stdout("")
    used = [column["name"] for column in columns if column["used"]]
    lines: dict[str, object] = {"rows": f"{result['rows']:,}, {format_count(len(columns), 'column')}"}
    lines["clustered by"] = ", ".join(used) or "no column"
    for column in columns:
        if not column["used"] and column["why"]:
            lines[f"not {column['name'][:MAX_NAME]}"] = column["why"]
    if result["problem"]:
        lines["problem"] = result["problem"]
    top = dominant_columns({column["name"]: column["share"] for column in columns if column["used"]})
    if top:
        lines["scale"] = f"{' and '.join(top)} would decide the clusters alone: use --standardize"
    lines["next"] = result["command"]
    show({}, False, lines)


def _cells(column: Mapping[str, Any], n: int) -> list[str]:
    """Return a column of the file as a row of the printed table."""
    name, missing = column["name"], column["missing"]
    share = "" if column["share"] is None else f"{100 * column['share']:.1f}%"
    return [
        name if len(name) <= MAX_NAME else name[: MAX_NAME - 1] + "…",
        column["kind"] if column["kind"] != "notation" else "text",
        f"{missing:,} ({100 * missing / max(n, 1):.1f}%)" if missing else "0",
        f"{column['distinct']:,}",
        _values(column),
        share,
        "yes" if column["used"] else "no",
    ]


def _values(column: Mapping[str, Any]) -> str:
    """Return the range and mean of numbers, or the most frequent texts."""
    if column["kind"] == "date" and column["minimum"] == column["minimum"]:
        import datetime

        try:
            days = [datetime.date(1970, 1, 1) + datetime.timedelta(days=column[end]) for end in ("minimum", "maximum")]
        except OverflowError:
            return ""
        return f"{days[0]} to {days[1]}"
    if column["kind"] == "boolean":
        return f"{100 * column['mean']:.1f}% true"
    if column["minimum"] == column["minimum"]:
        ends = f"{column['minimum']:,.6g} to {column['maximum']:,.6g}"
        return ends if column["kind"] == "id" else f"{ends}, mean {column['mean']:,.6g}"
    text = ", ".join(f"{value} ({count:,})" for value, count in column["top"])
    return text if len(text) <= MAX_VALUES else text[: MAX_VALUES - 1] + "…"
