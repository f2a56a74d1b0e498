"""Data classes that a report is rendered from."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np

from .. import __version__
from ..data.types import Array

Texts = Any  # one entry per row: list, array or table column


class Options(NamedTuple):
    """Options of a report on a fitted model.

    Parameters
    ----------
    ids : array-like of shape (n_samples,) or None, default=None
        Identifier of each row. None for the id column of the file, or else row numbers.
    texts : array-like of shape (n_samples,) or None, default=None
        Text of each row, shown next to its identifier.
    columns : sequence of str or None, default=None
        Column names. None for the names seen in fit.
    image : tuple of int or None, default=None
        Shape (height, width) or (height, width, 3) of the rows, if they are images.
    weights : array-like of shape (n_samples,) or None, default=None
        Weights of the rows, as passed to fit.
    sample : int, default=3000
        Maximum number of rows on the map and in the silhouette.
    seed : int, default=0
        Seed of the sample.
    clusters : int, default=500
        Maximum number of clusters described individually; the largest are chosen.
    """

    ids: Texts = None
    texts: Texts = None
    columns: Sequence[str] | None = None
    image: tuple[int, ...] | None = None
    weights: Any = None
    sample: int = 3000
    seed: int = 0
    clusters: int = 500


def versions() -> dict[str, str]:
    """Return the versions of Shoal, Python, the numerical packages and the operating system."""
    packages = {name: version(name) for name in ("numpy", "scipy", "scikit-learn", "numba")}
    return {"shoal": __version__, "python": platform.python_version(), **packages, "system": platform.platform()}


class Origin(NamedTuple):
    """Provenance of a fit. Empty fields are left out of the report.

    Parameters
    ----------
    title : str, default=""
        Title of the report.
    command : str, default=""
        Command that reproduces the fit.
    seed : int or None, default=None
        Random seed.
    data : str, default=""
        Path of the data.
    fingerprint : str, default=""
        Fingerprint of the data.
    date : str, default=""
        Date of the fit.
    parameters : mapping, default={}
        Parameters of the fit.
    versions : mapping, default={}
        Versions of the packages.
    seconds : float or None, default=None
        Wall time of the whole fit, which the history, a record of the steps, does not contain.
    """

    title: str = ""
    command: str = ""
    seed: int | None = None
    data: str = ""
    fingerprint: str = ""
    date: str = ""
    parameters: Mapping[str, Any] = {}
    versions: Mapping[str, str] = {}
    seconds: float | None = None


class Curve(NamedTuple):
    """Convergence curve of a fit, with one entry per step.

    Parameters
    ----------
    seconds : ndarray of shape (n_steps,)
        Seconds since the start of the fit.
    visited : ndarray of shape (n_steps,) or (0,)
        Number of rows processed so far; empty if the method does not record it.
    values : ndarray of shape (n_steps,)
        Values of the objective.
    measure : str, default="energy"
        Name of the objective.
    """

    seconds: Array
    visited: Array
    values: Array
    measure: str = "energy"

    @classmethod
    def of(cls, history: Sequence[Mapping[str, Any]]) -> Curve:
        """Create a curve from `history_`, skipping records without a finite objective."""
        recorded = {name for record in history for name in record}
        defaults = {"seconds": 0.0, "rows": 0.0, "energy": np.nan, "objective": np.nan}
        table = {n: np.array([record.get(n, default) for record in history], np.float64) for n, default in defaults.items()}
        measure = next((name for name in ("energy", "objective") if np.isfinite(table[name]).any()), "energy")
        is_valid = np.isfinite(table[measure]) & np.isfinite(table["seconds"])
        visited = table["rows"].cumsum()[is_valid] if "rows" in recorded else np.empty(0)
        return cls(table["seconds"][is_valid], visited, table[measure][is_valid], measure)


class Trait(NamedTuple):
    """Column in which a cluster differs from the mean of all rows."""

    column: str
    value: float  # of the centroid
    mean: float  # of all rows
    z_score: float  # (value - mean) / standard deviation of all rows
    is_share: bool = False  # whether the column holds zeros and ones, so that means are shares of the rows


class ColumnFacts(NamedTuple):
    """Means of a column, over all rows and over those of each cluster."""

    name: str
    mean: float  # of all rows
    means: Array  # of the described clusters, in their order
    z_scores: Array  # (means - mean) / standard deviation of all rows
    is_share: bool  # whether the column holds zeros and ones, so that means are shares of the rows


class Row(NamedTuple):
    """Row close to a centroid."""

    number: int
    name: str  # identifier; empty if the rows have none
    text: str
    distance: float
    picture: Array | None


class Cluster(NamedTuple):
    """Description of one cluster."""

    number: int  # label of the cluster
    size: int  # number of rows
    energy: float  # within-cluster sum of the distance measure
    distance: float  # mean distance of its rows from the centroid; NaN if the cluster is empty
    silhouette: float  # mean over its rows in the sample; NaN if the sample has none
    traits: list[Trait]  # most distinctive columns, the largest |z-score| first
    nearest: list[Row]  # rows closest to the centroid, the closest first
    picture: Array | None  # the centroid as an image


class Map(NamedTuple):
    """Projection of a sample of the rows onto its first two principal components."""

    points: Array  # (m, 2)
    labels: Array  # (m)
    shares: Array  # (2): explained variance ratios
    space: str  # space of the projected rows: "rows", "standardized", "codes" or "embedding"


class Quality(NamedTuple):
    """Internal quality measures; None if a measure is undefined or too expensive to compute."""

    sample: int  # number of sampled rows that the silhouette is computed on
    silhouette: float | None
    davies_bouldin: float | None


class Facts(NamedTuple):
    """Facts about a fitted model and its rows that a report shows."""

    method: str  # name of the estimator
    n: int  # number of rows
    d: int  # number of columns
    k: int  # number of clusters
    energy: float | None  # inertia over all rows
    measure: str  # distance measure that the energy sums
    steps: int  # number of iterations
    stopped: str  # stop reason
    summary: str  # `summary_` of the estimator, if it has one
    origin: Origin
    curve: Curve
    sizes: Array  # (k)
    energies: Array  # (k)
    clusters: list[Cluster]  # the largest first, at most Options.clusters
    map: Map
    quality: Quality
    warnings: list[str]
    columns: Sequence[ColumnFacts] = ()  # in the order of X; those that differ most between clusters, if there are many
    dominant: tuple[str, ...] = ()  # few columns that make up most of the variance, if the rows were not standardized


class Trial(NamedTuple):
    """Result of one method in a comparison on the same rows and initial centroids.

    Parameters
    ----------
    name : str
        Name of the method.
    curve : Curve
        Convergence curve.
    energy : float
        Final energy (inertia) over all rows.
    seconds : float
        Wall time of the fit.
    steps : int, default=0
        Number of iterations.
    stopped : str, default=""
        Stop reason.
    """

    name: str
    curve: Curve
    energy: float
    seconds: float
    steps: int = 0
    stopped: str = ""


class Point(NamedTuple):
    """Result for one number of clusters in a sweep.

    Parameters
    ----------
    k : int
        Number of clusters.
    energy : float
        Final energy (inertia) over all rows.
    silhouette : float or None, default=None
        Simplified silhouette.
    seconds : float or None, default=None
        Wall time of the fit.
    stopped : str, default=""
        Stop reason.
    """

    k: int
    energy: float
    silhouette: float | None = None
    seconds: float | None = None
    stopped: str = ""
