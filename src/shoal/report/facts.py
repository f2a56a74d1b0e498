"""What a report tells: plain data, whoever gathered it."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np

from .. import __version__
from ..data.types import Array

Texts = Any  # one for each row: a list, an array, a column of a table


class Options(NamedTuple):
    """What to tell of the rows, and how much."""

    ids: Texts = None  # of rows; None for their numbers, or what the file calls them
    texts: Texts = None  # of rows, to be shown beside their ids
    columns: Sequence[str] | None = None  # their names; None for those of the fit
    image: tuple[int, ...] | None = None  # (height, width) or (height, width, 3), where rows are pictures
    weights: Any = None  # of rows, as in the fit
    sample: int = 3000  # rows on the map, and to judge clusters by
    seed: int = 0  # of the sample
    clusters: int = 500  # to tell of one by one, the largest


def versions() -> dict[str, str]:
    """Of what computes."""
    packages = {name: version(name) for name in ("numpy", "scipy", "scikit-learn", "numba")}
    return {"shoal": __version__, "python": platform.python_version(), **packages, "system": platform.platform()}


class Origin(NamedTuple):
    """How to repeat it. What is empty is not told."""

    title: str = ""
    command: str = ""
    seed: int | None = None
    data: str = ""  # where it is
    fingerprint: str = ""  # of the data
    date: str = ""
    parameters: Mapping[str, Any] = {}
    versions: Mapping[str, str] = {}
    seconds: float | None = None  # that the whole fit took; its history tells of the steps alone


class Curve(NamedTuple):
    """How a fit went, step by step."""

    seconds: Array
    visited: Array  # rows looked at so far; empty where the method does not tell
    values: Array
    measure: str = "energy"  # what the values are

    @classmethod
    def of(cls, history: Sequence[Mapping[str, Any]]) -> Curve:
        """From the records of `history_`; those without a finite value (steps of another kind, too) are left out."""
        told = {name for record in history for name in record}
        names = {"seconds": 0.0, "rows": 0.0, "energy": np.nan, "objective": np.nan}
        table = {n: np.array([record.get(n, other) for record in history], np.float64) for n, other in names.items()}
        measure = next((name for name in ("energy", "objective") if np.isfinite(table[name]).any()), "energy")
        good = np.isfinite(table[measure]) & np.isfinite(table["seconds"])
        visited = table["rows"].cumsum()[good] if "rows" in told else np.empty(0)
        return cls(table["seconds"][good], visited, table[measure][good], measure)


class Trait(NamedTuple):
    """A column that sets a cluster apart."""

    column: str
    value: float  # of the centre
    usual: float  # the mean of all rows
    spreads: float  # between the two, in standard deviations of all rows


class Row(NamedTuple):
    """A row near a centre."""

    number: int
    name: str  # empty where rows have no names
    text: str
    distance: float
    picture: Array | None


class Cluster(NamedTuple):
    number: int  # as in the labels
    size: int
    energy: float
    distance: float  # of its rows from the centre, in the mean; NaN without rows
    silhouette: float  # of its rows in the sample, in the mean; NaN without any
    traits: list[Trait]
    nearest: list[Row]
    picture: Array | None


class Map(NamedTuple):
    """A sample of the rows along the two directions in which it spreads most."""

    points: Array  # (m, 2)
    labels: Array  # (m)
    shares: Array  # (2): of the sample's variance
    space: str  # where the rows lie: "rows", "standardized", "codes", "embedding"


class Quality(NamedTuple):
    """On a sample of so many rows; None for what says nothing or would take too long."""

    sample: int
    silhouette: float | None
    davies_bouldin: float | None


class Facts(NamedTuple):
    """A fitted model and its rows."""

    method: str
    n: int
    d: int
    k: int
    energy: float | None  # of all rows
    measure: str  # what it is the sum of
    steps: int
    stopped: str
    summary: str  # the method's own
    origin: Origin
    curve: Curve
    sizes: Array  # (k)
    energies: Array  # (k)
    clusters: list[Cluster]  # the largest first; of many, not all
    map: Map
    quality: Quality
    warnings: list[str]


class Trial(NamedTuple):
    """One of several methods, on the same rows from the same start."""

    name: str
    curve: Curve
    energy: float  # of all rows, in the end
    seconds: float
    steps: int = 0
    stopped: str = ""


class Point(NamedTuple):
    """One of several numbers of clusters."""

    k: int
    energy: float
    silhouette: float | None = None
    seconds: float | None = None
    stopped: str = ""
