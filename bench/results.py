"""Store results (one JSON file per suite, one entry per problem, with command and machine) and render them as Markdown."""

from __future__ import annotations

import datetime
import json
import platform
import subprocess
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

import joblib

Entry = dict[str, Any]

FOLDER = Path(__file__).parent / "results"
PACKAGES = (
    "numpy",
    "scipy",
    "numba",
    "scikit-learn",
    "scikit-learn-intelex",
    "faiss-cpu",
    "superkmeans",
    "dask",
    "dask-ml",
    "pyspark",
)


def ratio_text(ratio: float) -> str:
    """Format a speed ratio; ratios below 1 are marked as slower."""
    digits = f"{ratio:.2f}" if ratio < 10 else f"{ratio:.0f}"
    return f"{digits}x (slower)" if ratio < 1 else f"{digits}x"


def made(command: str) -> Entry:
    """Return command, date, revision, machine and package versions of a result."""
    from shoal import __version__

    versions = {"python": platform.python_version(), "shoal": __version__}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return {
        "command": command,
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "revision": _revision(),
        "cpu": _cpu(),
        "cores": joblib.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "versions": versions,
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.processor())


def _revision() -> str:
    """Return the commit, with a plus sign if the source has uncommitted changes."""
    here = Path(__file__).parents[1]
    try:
        name, changes = (
            subprocess.run(["git", "-C", str(here), *words], capture_output=True, text=True, check=True).stdout.strip()
            for words in (["rev-parse", "--short", "HEAD"], ["status", "--porcelain", "src"])
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return name + ("+" if changes else "")


def keep(folder: Path, suite: str, entry: Entry) -> None:
    """Store an entry in the suite's file; replace an older entry of the same problem."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{suite}.json"
    entries = read(path) if path.exists() else []
    names = [old["problem"] for old in entries]
    if entry["problem"] in names:
        entries[names.index(entry["problem"])] = entry
    else:
        entries.append(entry)
    path.write_text(json.dumps({"suite": suite, "entries": entries}, indent=1) + "\n")


def read(path: Path) -> list[Entry]:
    return json.loads(path.read_text())["entries"]  # type: ignore[no-any-return]


def by_problem(path: Path) -> dict[str, Entry]:
    return {entry["problem"]: entry for entry in read(path)} if path.exists() else {}


def _cell(key: str, value: Any) -> str:
    if value is None:
        return ""
    if key == "shoal is":
        return ratio_text(value)
    if isinstance(value, float):
        if "energy" in key and not key.startswith(("seconds", "times")):
            return f"{value:.7f}"
        return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"
    return str(value)


def _figure_text(figure: Entry) -> str:
    if "ratio" in figure:
        return ratio_text(figure["ratio"])
    text = _cell(figure["what"], figure["value"])
    limit, least = figure.get("limit"), figure.get("least")
    if least is not None:
        return f"{text} (at least {least})" if figure["value"] >= least else f"{text} (below the {least} that it should be)"
    if limit is None:
        return text
    return f"{text} (limit {limit})" if figure["value"] <= limit else f"{text} (over the limit of {limit})"


def as_table(columns: list[str], rows: Iterable[list[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(map(escaped, line)) + " |" for line in lines)


def escaped(cell: str) -> str:
    return cell.replace("|", "\\|")


def tables(entries: list[Entry]) -> list[str]:
    """Return tables: figures first, then results per library. A single problem is not named."""
    parts = []
    few = len(entries) == 1
    figures = [[e["problem"], f["what"], _figure_text(f)][few:] for e in entries for f in e["figures"]]
    if figures:
        parts.append(as_table(["problem", "figure", "value"][few:], figures))
    kinds: dict[str, list[Entry]] = {}  # rows by the name of their first column
    for entry in entries:
        for row in entry["rows"]:
            kinds.setdefault(next(iter(row)), []).append({"problem": entry["problem"], **row})
    for rows in kinds.values():
        columns = [key for key in dict.fromkeys(key for row in rows for key in row) if key != "repeats"][few:]
        parts.append(as_table(columns, ([_cell(key, row.get(key)) for key in columns] for row in rows)))
    return parts


def render(suite: str, entries: list[Entry]) -> str:
    """Render a suite as Markdown: measure, tables, skipped problems and provenance."""
    parts = [f"## {suite}", "\n".join(dict.fromkeys(entry["measure"] for entry in entries)), *tables(entries)]
    left_out = dict.fromkeys(f"- {entry['problem']}: left out: {line}" for entry in entries for line in entry["left out"])
    if left_out:
        parts.append("\n".join(left_out))
    return "\n\n".join([*parts, made_text(entries)]) + "\n"


def made_text(entries: list[Entry], versions: bool = True) -> str:
    """Return the provenance of entries, one line per command."""
    runs: dict[str, list[Entry]] = {}
    for entry in entries:
        by = entry["made"]
        runs.setdefault(json.dumps([by["command"], by["revision"], by["cpu"], by["versions"]]), []).append(entry)
    return "\n".join(_made_text(run, versions) for run in runs.values())


def _made_text(entries: list[Entry], versions: bool) -> str:
    """Return the provenance of entries of one command, with the highest load by other processes."""
    by = entries[-1]["made"]
    packages = "; " + ", ".join(f"{name} {version}" for name, version in by["versions"].items()) if versions else ""
    where = f"{by['cpu']}, {by['cores']} cores"
    others = [entry["others"] for entry in entries if entry["others"] is not None]
    if others:
        where += f", up to {max(others):.0%} in use by others"
    return f"`{by['command']}`, {by['date']}, {by['revision']}, {where}{packages}."
