"""Provenance of a run: processor, number of cores, revision of the source."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path

from joblib import cpu_count


def processor(path: str = "/proc/cpuinfo") -> str:
    """Return the model of the processor."""
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        lines = []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.processor())


def revision() -> str | None:
    """Return the commit of the checkout that this file is in, marked if files have changed; None outside of one."""
    git = ["git", "-C", str(Path(__file__).parent)]
    try:
        commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, timeout=10, check=True)
        changes = subprocess.run([*git, "diff", "--quiet", "HEAD"], capture_output=True, timeout=10, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    return commit.stdout.strip() + ("+changes" if changes.returncode else "")


def describe() -> dict[str, object]:
    """Return what `claims.json` says about the machine."""
    return {"processor": processor(), "cores": cpu_count(), "revision": revision()}
