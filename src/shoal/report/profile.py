"""Distinctive columns and nearest rows of each cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..binary.codes import Codes
from ..data.bits import unpacked
from ..data.rows import Rows
from ..data.source import FileSource, Source, file_column_names
from ..data.types import Array, is_sparse
from .cluster_statistics import ClusterStatistics, profile_columns
from .column_moments import ColumnMoments
from .facts import Cluster, Options, Row, Trait

MAX_TRAITS = 6  # columns listed per cluster: what fits into a table cell
MIN_Z_SCORE = 0.25  # standard deviations; smaller differences are not distinctive
MIN_DEVIATION = 8  # standard deviation of a column, in units in the last place of its mean; less is rounding noise
MISSING_VALUES = ("nan", "NaT", "<NA>")  # as printed by NumPy and pandas


class Profile(NamedTuple):
    """Clusters described in the columns of X."""

    centers: Array  # (k, d)
    means: Array  # (d): over all rows
    z_scores: Callable[[int], Array]  # cluster -> (d): difference from the mean, in standard deviations of all rows
    pictured_rows: Any  # raw rows to show as images; None if there are none


def _z_scores(C: Array, columns: ColumnMoments, dtype: np.dtype) -> Callable[[int], Array]:
    """Return a function that computes the z-scores of a centroid. Columns that are (nearly) constant score 0.

    A column is nearly constant if its deviation is not well above the rounding of centroids in their dtype.
    """
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        deviation = np.sqrt(columns.squares / columns.n)
        is_valid = np.isfinite(deviation) & (deviation > MIN_DEVIATION * np.finfo(dtype).eps * np.abs(columns.means))
    deviation = np.where(is_valid, deviation, 1.0)
    return lambda j: np.where(is_valid, (C[j] - columns.means) / deviation, 0.0)


def profile_from_centers(model: Any, columns: ColumnMoments, rows: Rows, C: Array, source: Source, pictured: Array) -> Profile:
    """Describe clusters by their centroids, for models whose centroids are in the columns of X."""
    float64 = np.dtype(np.float64)
    means = rows.frame.out_of(columns.means[None], float64)[0]
    centers = getattr(model, "cluster_centers_", None)
    centers = rows.frame.out_of(C, float64) if centers is None else np.asarray(centers)
    pictured_rows = source.take(pictured) if len(pictured) else None
    dtype = centers.dtype if centers.dtype.kind == "f" else float64
    return Profile(centers, means, _z_scores(C, columns, dtype), pictured_rows)


def profile_from_means(source: Source, labels: Array, k: int, pictured: Array) -> Profile:
    """Describe clusters by the means of their rows, for models that cluster in another space. Reads all rows once."""
    n_bits = source.n_bits if isinstance(source, Codes) else 0
    found = profile_columns(source, n_bits, labels, k, pictured)
    C = found.sums / np.maximum(np.bincount(labels, minlength=k), 1)[:, None]
    pictured_rows = unpacked(found.selected, n_bits) if n_bits else found.selected
    z_scores = _z_scores(C, found.columns, C.dtype)
    return Profile(C + found.origin, found.columns.means + found.origin, z_scores, pictured_rows)


class ClusterDetails(NamedTuple):
    """Results that the descriptions of clusters are assembled from."""

    stats: ClusterStatistics
    energies: Array  # (k)
    shown: Array  # labels of the clusters to describe, in order
    pictured: Array  # sorted row numbers of `profile.pictured_rows`
    profile: Profile | None
    silhouettes: Array  # (k)


RowTexts = dict[int, str]  # row number -> text


def describe_clusters(details: ClusterDetails, options: Options, column_name: Any, ids: Any) -> list[Cluster]:
    """Return the descriptions of the shown clusters."""
    nearest = details.stats.nearest
    rows = np.unique(nearest.ids[np.isin(nearest.labels, details.shown)])
    names = _texts_of_rows(ids, rows), _texts_of_rows(options.texts, rows)
    return [_describe_cluster(int(j), details, options, column_name, names) for j in details.shown]


def _texts_of_rows(values: Any, rows: Array) -> RowTexts:
    """Return the texts of the given rows. A file is read once for all of them."""
    if values is None:
        return {}
    selected = values.values_at(rows) if hasattr(values, "values_at") else [_text_at(values, i) for i in rows.tolist()]
    return dict(zip(rows.tolist(), map(_as_text, selected), strict=True))


def _describe_cluster(
    j: int, details: ClusterDetails, options: Options, column_name: Any, names: tuple[RowTexts, RowTexts]
) -> Cluster:
    """Return the description of cluster j."""
    stats, profile = details.stats, details.profile
    size = int(stats.sizes[j])
    traits: list[Trait] = []
    picture = None
    if profile is not None and size:
        traits = _distinctive_columns(j, profile, column_name)
        picture = np.asarray(profile.centers[j], np.float64).reshape(options.image) if options.image else None
    members = np.flatnonzero(stats.nearest.labels == j)
    nearest = [
        _describe_row(int(stats.nearest.ids[i]), float(stats.nearest.distances[i]), details, options, names) for i in members
    ]
    distance = float(stats.distance_sums[j] / size) if size else float("nan")
    return Cluster(j, size, float(details.energies[j]), distance, float(details.silhouettes[j]), traits, nearest, picture)


def _distinctive_columns(j: int, profile: Profile, column_name: Any) -> list[Trait]:
    """Return the columns with the largest absolute z-scores, in descending order. Ties go to the first column."""
    z = profile.z_scores(j)
    top = np.argpartition(-np.abs(z), MAX_TRAITS - 1)[:MAX_TRAITS] if len(z) > MAX_TRAITS else np.arange(len(z))
    top = top[np.lexsort((top, -np.abs(z[top])))]
    return [
        Trait(column_name(int(c)), float(profile.centers[j, c]), float(profile.means[c]), float(z[c]))
        for c in top
        if abs(z[c]) >= MIN_Z_SCORE
    ]


def _describe_row(i: int, distance: float, details: ClusterDetails, options: Options, names: tuple[RowTexts, RowTexts]) -> Row:
    """Return the description of row i, one of the nearest rows of a cluster."""
    picture, profile = None, details.profile
    if options.image and profile is not None and profile.pictured_rows is not None:
        raw = profile.pictured_rows[[int(np.searchsorted(details.pictured, i))]]
        picture = np.asarray(raw.toarray() if is_sparse(raw) else raw, np.float64).reshape(options.image)
    ids, texts = names
    return Row(i, ids.get(i, ""), texts.get(i, ""), distance, picture)


def _text_at(values: Any, i: int) -> str:
    """Return entry i of a list, an array or a table column as text."""
    return _as_text(values.iloc[i] if hasattr(values, "iloc") else values[i])


def _as_text(value: Any) -> str:
    """Return a value as text; missing values of NumPy, pandas and pyarrow become an empty string."""
    if hasattr(value, "as_py"):
        try:
            value = value.as_py()
        except (ValueError, OverflowError):  # a date that Python does not have, or invalid UTF-8
            return f"(unreadable {value.type})"
    if value is None or (not isinstance(value, str) and str(value) in MISSING_VALUES):
        return ""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def row_ids(X: Any, options: Options) -> Any:
    """Return the identifiers of the rows: those given, or else the id column of the file."""
    return getattr(X, "id_column", None) if options.ids is None and isinstance(X, FileSource) else options.ids


def column_namer(model: Any, X: Any, options: Options, d: int) -> Callable[[int], str]:
    """Return a function that maps a column number to its name."""
    for names in (options.columns, getattr(model, "feature_names_in_", None), file_column_names(X)):
        if names is not None and len(names) == d:
            return lambda c: _text_at(names, c)
    shape = options.image
    return lambda c: f"column {c}" if shape is None else "pixel " + ",".join(map(str, np.unravel_index(c, shape)))
