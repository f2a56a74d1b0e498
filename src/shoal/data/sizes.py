"""Parse and format sizes in bytes."""

from __future__ import annotations

import contextlib
import math
import re
from typing import Any

UNITS = {"": 1.0, "B": 1.0} | {f"{c}{end}": 1e3**i for i, c in enumerate("KMGTPE", 1) for end in ("", "B")}

UNITS |= {f"{c}IB": 1024.0**i for i, c in enumerate("KMGTPE", 1)}


def parse_size(limit: Any) -> float:
    """Return the number of bytes of a size such as 1000, "512MB" or "2GiB"."""
    text = f"{limit:f}" if isinstance(limit, float) else str(limit)
    match = re.fullmatch(r"\s*([0-9.]+)\s*([A-Za-z]*)\s*", text) if not isinstance(limit, bool) else None
    with contextlib.suppress(KeyError, ValueError):
        if match is not None and 0 < (size := float(match[1]) * UNITS[match[2].upper()]) < math.inf:
            return size
    raise ValueError(f"memory limit {limit!r} is no size: give a number of bytes, or one with a unit such as '512MB'.")


def format_size(size: float) -> str:
    """Return a size as text with three significant digits, such as "1.5 GB"."""
    unit = max((i for i in range(7) if size >= 0.9995 * 1e3**i), default=0)  # 999.5 MB are rounded to 1 GB
    return f"{size / 1e3**unit:.3g} {('B', 'kB', 'MB', 'GB', 'TB', 'PB', 'EB')[unit]}"
