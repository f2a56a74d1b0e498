"""What sets each cluster apart: the columns its centre stands out in, the rows nearest to it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..binary.codes import Codes
from ..data.bits import unpacked
from ..data.rows import Rows
from ..data.source import FileSource, Source
from ..data.types import Array, is_sparse
from .facts import Cluster, Options, Row, Trait
from .look import Columns, Look, describe

TRAITS = 6  # columns to tell of each cluster
SLIGHT = 0.25  # spreads; what differs by less does not set a cluster apart
MISSING = ("nan", "NaT", "<NA>")


class Profile(NamedTuple):
    """The clusters in the columns of X."""

    centers: Array  # (k, d)
    usual: Array  # (d): the mean of all rows
    spreads: Any  # function: number of a cluster -> (d), its distance from the mean in standard deviations
    rows: Any  # the nearest ones, raw, where they are to be seen


def _spreads(C: Array, sums: Columns, n: int) -> Any:
    mean = sums.sums / n
    with np.errstate(invalid="ignore"):
        variance = sums.squares / n - mean**2
    known = np.isfinite(variance) & (variance > 1e-12 * mean**2)
    deviation = np.sqrt(np.where(known, variance, 1.0))
    return lambda j: np.where(known, (C[j] - mean) / deviation, 0.0)


def own_profile(model: Any, seen: Look, rows: Rows, C: Array, source: Source, pictured: Array) -> Profile:
    """Of clusters that were found in these columns: their centres, as published."""
    assert seen.columns is not None
    out = np.dtype(np.float64)
    usual = rows.frame.out_of((seen.columns.sums / len(rows))[None], out)[0]
    centers = getattr(model, "cluster_centers_", None)
    centers = rows.frame.out_of(C, out) if centers is None else np.asarray(centers)
    near = source.take(pictured) if len(pictured) else None
    return Profile(centers, usual, _spreads(C, seen.columns, len(rows)), near)


def means_profile(source: Source, labels: Array, k: int, pictured: Array) -> Profile:
    """Of clusters that were found elsewhere: the means of their rows, which are read once more."""
    n_bits = source.n_bits if isinstance(source, Codes) else 0
    columns, origin, near = describe(source, n_bits, labels, k, pictured)
    assert columns.clusters is not None
    C = columns.clusters / np.maximum(np.bincount(labels, minlength=k), 1)[:, None]
    near = unpacked(near, n_bits) if n_bits else near
    return Profile(C + origin, columns.sums / len(labels) + origin, _spreads(C, columns, len(labels)), near)


class Told(NamedTuple):
    """What clusters are told from."""

    seen: Look
    energies: Array  # (k)
    shown: Array  # which clusters, in order
    pictured: Array  # rows of the profile, in order
    profile: Profile | None
    silhouettes: Array  # (k)


Names = dict[int, str]  # of rows


def clusters(told: Told, options: Options, columns: Any, ids: Any) -> list[Cluster]:
    near = told.seen.near
    rows = np.unique(near.ids[np.isin(near.labels, told.shown)])
    names = _some(ids, rows), _some(options.texts, rows)
    return [_cluster(int(j), told, options, columns, names) for j in told.shown]


def _some(values: Any, rows: Array) -> Names:
    """What some rows are called; a file is read for it once."""
    if values is None:
        return {}
    some = values.some_values(rows) if hasattr(values, "some_values") else [_at(values, i) for i in rows.tolist()]
    return dict(zip(rows.tolist(), map(_as_text, some), strict=True))


def _cluster(j: int, told: Told, options: Options, columns: Any, names: tuple[Names, Names]) -> Cluster:
    seen, profile = told.seen, told.profile
    size = int(seen.sizes[j])
    traits: list[Trait] = []
    picture = None
    if profile is not None and size:
        z = profile.spreads(j)
        top = np.argpartition(-np.abs(z), TRAITS - 1)[:TRAITS] if len(z) > TRAITS else np.arange(len(z))
        top = top[np.lexsort((top, -np.abs(z[top])))]
        traits = [
            Trait(columns(int(c)), float(profile.centers[j, c]), float(profile.usual[c]), float(z[c]))
            for c in top
            if abs(z[c]) >= SLIGHT
        ]
        picture = np.asarray(profile.centers[j], np.float64).reshape(options.image) if options.image else None
    here = np.flatnonzero(seen.near.labels == j)
    nearest = [_row(int(seen.near.ids[at]), float(seen.near.far[at]), told, options, names) for at in here]
    distance = float(seen.distances[j] / size) if size else float("nan")
    return Cluster(j, size, float(told.energies[j]), distance, float(told.silhouettes[j]), traits, nearest, picture)


def _row(i: int, far: float, told: Told, options: Options, names: tuple[Names, Names]) -> Row:
    picture = None
    if options.image and told.profile is not None and told.profile.rows is not None:
        raw = told.profile.rows[[int(np.searchsorted(told.pictured, i))]]
        picture = np.asarray(raw.toarray() if is_sparse(raw) else raw, np.float64).reshape(options.image)
    ids, texts = names
    return Row(i, ids.get(i, ""), texts.get(i, ""), far, picture)


def _at(values: Any, i: int) -> str:
    """One of the values, as text, whatever holds them."""
    return _as_text(values.iloc[i] if hasattr(values, "iloc") else values[i])


def _as_text(value: Any) -> str:
    """Empty for what is missing, whichever package says so."""
    value = value.as_py() if hasattr(value, "as_py") else value
    if value is None or (not isinstance(value, str) and str(value) in MISSING):
        return ""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def ids_of(X: Any, options: Options) -> Any:
    return getattr(X, "id_column", None) if options.ids is None and isinstance(X, FileSource) else options.ids


def columns_of(model: Any, X: Any, options: Options, d: int) -> Any:
    """Function: number of a column -> its name."""
    of_file = X.feature_names if isinstance(X, FileSource) else None
    for names in (options.columns, getattr(model, "feature_names_in_", None), of_file):
        if names is not None and len(names) == d:
            return lambda c: _at(names, c)
    shape = options.image
    return lambda c: f"column {c}" if shape is None else "pixel " + ",".join(map(str, np.unravel_index(c, shape)))
