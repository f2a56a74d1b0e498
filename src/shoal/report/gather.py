"""Facts from a fitted estimator and its rows, of which no more is read than twice, block by block."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..binary.codes import Codes
from ..data.frame import Frame
from ..data.rows import Rows
from ..data.source import Source
from ..data.types import Array
from ..data.validation import check_weights
from ..execution.threads import on_threads
from ..fit.input import check_rows
from ..fit.schema import check_fitted_state
from ..fit.standardized import Standardized
from .facts import Curve, Facts, Options, Origin, versions
from .look import Columns, column_sums, look
from .profile import Told, clusters, columns_of, ids_of, means_profile, own_profile
from .sample import Place, draw_sample, judge

NEAREST = 5  # rows to tell of each cluster


def gather(model: Any, X: Any, options: Options = Options(), origin: Origin = Origin(), warnings: Sequence[str] = ()) -> Facts:
    """What there is to tell of a fitted model and its rows.

    Parameters
    ----------
    model : estimator
        With `cluster_centers_`, or with `labels_` and perhaps an `embedding_`.
    X : array, sparse matrix, table or rows of a file
        The rows of the fit, in their order; or others, for which `predict` is asked if they are more or fewer. For as many
        others, take `labels_` off first.
    options : Options
        Names of rows and columns, weights, the size of the sample, the shape of pictures.
    origin : Origin
        How to repeat the fit. Versions, seed and parameters are filled in where they are not told.
    warnings : list of str
        What was warned of while it went on.

    Returns
    -------
    facts : Facts
    """
    source = X if isinstance(X, Codes) else check_rows(None, X, reset=False)
    n, d = source.shape
    _check(options, n, d)
    if hasattr(model, "_fitted_schema"):
        check_fitted_state(model)
    labels = getattr(model, "labels_", None)
    if labels is None or len(labels) != n:
        labels = model.predict(X)
    labels = _checked_labels(labels, n, len(getattr(model, "cluster_centers_", ())) or n)
    place = _place(model, X, source, labels, check_weights(options.weights, n))
    with on_threads(place.rows, getattr(model, "n_threads", None)) as rows:
        own = place.space == "rows"
        drawn, k = draw_sample(rows, options), len(place.centers.C)
        seen = look(rows, place.centers, labels, drawn, NEAREST, own)
        shown = np.argsort(-seen.sizes, kind="stable")[: options.clusters]
        pictured = np.unique(seen.near.ids[np.isin(seen.near.labels, shown)]) if options.image else np.empty(0, np.int64)
        known = getattr(model, "affinity", "") != "precomputed"
        profile = own_profile(model, seen, rows, place.centers.C, source, pictured) if own else None
        if profile is None and known:
            profile = means_profile(source, labels, k, pictured)
        judged = judge(place, seen, labels[drawn], options.seed)
        energies = np.array([rows.frame.energy_out_of(float(e)) for e in seen.energies])
        told = Told(seen, energies, shown, pictured, profile, judged.silhouettes)
        return Facts(
            method=_name(model),
            n=n,
            d=d,
            k=k,
            energy=float(energies.sum()),
            measure=_measure(rows.frame, place.space),
            steps=int(getattr(model, "n_iter_", 0)),
            stopped=str(getattr(model, "stop_reason_", "")),
            summary=str(getattr(model, "summary_", "")),
            origin=_origin(model, origin),
            curve=Curve.of(getattr(model, "history_", [])),
            sizes=seen.sizes,
            energies=energies,
            clusters=clusters(told, options, columns_of(model, X, options, d), ids_of(X, options)),
            map=judged.map,
            quality=judged.quality,
            warnings=[*map(str, warnings), *_doubts(model, float(energies.sum()), n)],
        )


def _checked_labels(labels: Any, n: int, k: int) -> Array:
    """Labels of n rows in at most k clusters, of any estimator."""
    found = np.asarray(labels)
    if found.shape != (n,) or found.dtype.kind not in "iu" or found.min() < 0 or found.max() >= k:
        raise ValueError(f"labels_ must be {n} integers from 0 to {k - 1}, one for each row of X: fit the model again.")
    return np.ascontiguousarray(found, np.int32)


def _check(options: Options, n: int, d: int) -> None:
    for name, values in (("ids", options.ids), ("texts", options.texts)):
        if values is not None and len(values) != n:
            raise ValueError(f"{name} has {len(values)} entries for {n} rows: give one for each.")
    if options.columns is not None and len(options.columns) != d:
        raise ValueError(f"columns has {len(options.columns)} names for {d} columns: give one for each.")
    shape = options.image
    if shape is not None and (len(shape) not in (2, 3) or np.prod(shape) != d or (len(shape) == 3 and shape[2] not in (1, 3))):
        size = "x".join(map(str, shape))
        raise ValueError(f"image={size} does not fit rows of {d} columns: give height x width, or height x width x 3.")


def _place(model: Any, X: Any, source: Source, labels: Array, weights: Array | None) -> Place:
    if isinstance(model, Standardized):
        scaled = model.scaled(X)
        place = _place(model.estimator_, scaled, scaled, labels, weights)
        return place._replace(space="standardized" if place.space == "rows" else place.space)
    if hasattr(model, "cluster_centers_"):
        rows, centers = model._rows(X, weights)
        same = not rows.frame.bits and rows.d == source.shape[1]
        return Place(rows, centers, "rows" if same else "codes")
    if hasattr(model, "kmeans_"):
        points = model._points(model.embedding_) if hasattr(model, "_points") else model.embedding_
        rows, centers = model.kmeans_._rows(points, weights)
        return Place(rows, centers, "embedding")
    embedding = getattr(model, "embedding_", None)
    rows = Rows.of(source if embedding is None else check_rows(None, embedding, reset=False), weights)
    rows = rows.with_dtype(np.dtype(np.float64))
    k = int(labels.max()) + 1
    with on_threads(rows) as rows:
        columns = Columns(np.zeros(rows.d), np.zeros(rows.d), np.zeros((k, rows.d)))
        for share in rows.map_blocks(lambda block, names: column_sums(block.X, names, k), per_row=(labels,)):
            columns.clusters[:] += share.clusters  # type: ignore[index]
    C = columns.clusters / np.maximum(np.bincount(labels, minlength=k), 1)[:, None]
    return Place(rows, rows.prepare(C), "rows" if embedding is None else "embedding")


def _name(model: Any) -> str:
    name = type(model).__name__
    return f"{name} {_name(model.estimator)}" if isinstance(model, Standardized) else name


def _measure(frame: Frame, space: str) -> str:
    if frame.bits:
        return "differing bits"
    kind = "1 - cosine" if frame.unit else "squared distances"
    return kind + {"embedding": " in the embedding", "standardized": " of standardized rows"}.get(space, "")


def _origin(model: Any, origin: Origin) -> Origin:
    seed = getattr(model, "random_state", None)
    usual = {name: repr(p.default) for name, p in inspect.signature(type(model)).parameters.items()}
    chosen = {name: repr(value) for name, value in model.get_params(deep=False).items() if name not in ("callback", "verbose")}
    parameters = origin.parameters or {name: value for name, value in chosen.items() if value != usual.get(name)}
    seed = int(seed) if origin.seed is None and isinstance(seed, int | np.integer) else origin.seed
    return origin._replace(seed=seed, parameters=parameters, versions=origin.versions or versions())


def _doubts(model: Any, energy: float, n: int) -> list[str]:
    """Is what was seen what was fitted?"""
    inertia = getattr(model, "inertia_", None)
    if inertia is None or not np.isfinite(inertia) or abs(energy - inertia) <= 1e-3 * max(abs(inertia), 1e-300) + 1e-9 * n:
        return []
    return [
        f"The energy of these rows is {energy:.6g}, and that of the fit was {float(inertia):.6g}: they are not the rows of the "
        "fit, or had other weights there."
    ]
