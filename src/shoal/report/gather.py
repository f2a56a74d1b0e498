"""Compute the facts of a report from a fitted estimator and its rows, in at most two passes over the rows."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..binary.codes import Codes
from ..data.blocks import Block, Centers
from ..data.frame import Frame
from ..data.rows import Rows
from ..data.source import Source
from ..data.types import Array
from ..data.validation import check_weights
from ..execution.threads import on_threads
from ..fit.input import check_rows
from ..fit.schema import check_fitted_state
from ..fit.standardized import Standardized
from .cluster_statistics import summarize_clusters
from .column_moments import cluster_sums
from .facts import Curve, Facts, Options, Origin, versions
from .profile import ClusterDetails, Profile, column_namer, describe_clusters, profile_from_centers, profile_from_means, row_ids
from .sample import ClusterSpace, draw_sample, evaluate_sample

N_NEAREST_ROWS = 5  # rows shown per cluster: enough to recognize it, few enough for 500 clusters on one page


def gather(model: Any, X: Any, options: Options = Options(), origin: Origin = Origin(), warnings: Sequence[str] = ()) -> Facts:
    """Compute the facts of a report on a fitted model.

    Parameters
    ----------
    model : estimator
        Fitted model with `cluster_centers_`, or with `labels_` and optionally `embedding_`.
    X : array, sparse matrix, table or file source of shape (n_samples, n_features)
        Rows passed to fit, in the same order. If their number differs from that of `labels_`, they are labelled with
        `predict`. To report on an equal number of other rows, delete `labels_` first.
    options : Options, default=Options()
        Names of rows and columns, weights, sample size and image shape.
    origin : Origin, default=Origin()
        Provenance of the fit. Versions, seed and parameters are filled in if they are not given.
    warnings : sequence of str, default=()
        Warnings raised during the fit.

    Returns
    -------
    facts : Facts
        Input of `write_fit`.

    Notes
    -----
    Rows are read block by block: once for models whose centroids are in the columns of X, twice for all others.

    Examples
    --------
    >>> import numpy as np
    >>> from shoal import KMeans
    >>> from shoal.report import gather
    >>> X = np.array([[0.0], [1.0], [10.0], [11.0]])
    >>> facts = gather(KMeans(2, random_state=0).fit(X), X)
    >>> facts.sizes.tolist(), facts.energy
    ([2, 2], 1.0)
    """
    source = X if isinstance(X, Codes) else check_rows(None, X, reset=False)
    n, d = source.shape
    _check_options(options, n, d)
    if hasattr(model, "_fitted_schema"):
        check_fitted_state(model)
    labels = getattr(model, "labels_", None)
    if labels is None or len(labels) != n:
        labels = model.predict(X)
    labels = _check_labels(labels, n, len(getattr(model, "cluster_centers_", ())) or n)
    space = _cluster_space(model, X, source, labels, check_weights(options.weights, n))
    with on_threads(space.rows, getattr(model, "n_threads", None)) as rows:
        is_in_columns = space.name == "rows"  # the centroids are in the columns of X
        sampled, k = draw_sample(rows, options), len(space.centers.C)
        stats = summarize_clusters(rows, space.centers, labels, sampled, N_NEAREST_ROWS, is_in_columns)
        shown = np.argsort(-stats.sizes, kind="stable")[: options.clusters]
        nearest = stats.nearest
        pictured = np.unique(nearest.ids[np.isin(nearest.labels, shown)]) if options.image else np.empty(0, np.int64)
        profile: Profile | None = None
        if stats.columns is not None:
            profile = profile_from_centers(model, stats.columns, rows, space.centers.C, source, pictured)
        elif getattr(model, "affinity", "") != "precomputed":  # columns of a similarity matrix describe nothing
            profile = profile_from_means(source, labels, k, pictured)
        evaluation = evaluate_sample(space, stats, labels[sampled], options.seed)
        energies = np.array([rows.frame.energy_out_of(float(e)) for e in stats.energies])
        details = ClusterDetails(stats, energies, shown, pictured, profile, evaluation.silhouettes)
        return Facts(
            method=_display_name(model),
            n=n,
            d=d,
            k=k,
            energy=float(energies.sum()),
            measure=_distance_measure(rows.frame, space.name),
            steps=int(getattr(model, "n_iter_", 0)),
            stopped=str(getattr(model, "stop_reason_", "")),
            summary=str(getattr(model, "summary_", "")),
            origin=_complete_origin(model, origin),
            curve=Curve.of(getattr(model, "history_", [])),
            sizes=stats.sizes,
            energies=energies,
            clusters=describe_clusters(details, options, column_namer(model, X, options, d), row_ids(X, options)),
            map=evaluation.map,
            quality=evaluation.quality,
            warnings=[*map(str, warnings), *_check_energy(model, float(energies.sum()), n)],
        )


def _check_labels(labels: Any, n: int, k: int) -> Array:
    """Return the labels as int32, or raise if they are not those of n rows in at most k clusters."""
    array = np.asarray(labels)
    if array.shape != (n,) or array.dtype.kind not in "iu" or array.min() < 0 or array.max() >= k:
        raise ValueError(f"labels_ must be {n} integers from 0 to {k - 1}, one for each row of X: fit the model again.")
    return np.ascontiguousarray(array, np.int32)


def _check_options(options: Options, n: int, d: int) -> None:
    """Raise if names or the image shape do not match n rows of d columns."""
    for name, values in (("ids", options.ids), ("texts", options.texts)):
        if values is not None and len(values) != n:
            raise ValueError(f"{name} has {len(values)} entries for {n} rows: pass one per row.")
    if options.columns is not None and len(options.columns) != d:
        raise ValueError(f"columns has {len(options.columns)} names for {d} columns: pass one per column.")
    shape = options.image
    if shape is not None and (len(shape) not in (2, 3) or np.prod(shape) != d or (len(shape) == 3 and shape[2] not in (1, 3))):
        size = "x".join(map(str, shape))
        raise ValueError(f"image={size} does not fit rows of {d} columns: pass height x width, or height x width x 3.")


def _cluster_space(model: Any, X: Any, source: Source, labels: Array, weights: Array | None) -> ClusterSpace:
    """Return the rows and centroids in the space in which the model clustered them."""
    if isinstance(model, Standardized):
        scaled = model.scaled(X)
        space = _cluster_space(model.estimator_, scaled, scaled, labels, weights)
        return space._replace(name="standardized" if space.name == "rows" else space.name)
    if hasattr(model, "cluster_centers_"):
        rows, centers = _rows_and_centers(model, X, weights)
        is_in_columns = not rows.frame.bits and rows.d == source.shape[1]
        return ClusterSpace(rows, centers, "rows" if is_in_columns else "codes")
    if hasattr(model, "kmeans_"):
        points = model._points(model.embedding_) if hasattr(model, "_points") else model.embedding_
        rows, centers = model.kmeans_._rows(points, weights)
        return ClusterSpace(rows, centers, "embedding")
    return _space_of_means(model, source, labels, weights)


def _rows_and_centers(model: Any, X: Any, weights: Array | None) -> tuple[Rows, Centers]:
    """Return the rows and centroids in the frame of the fit, and unit vectors in float64.

    Angles between rows far from the origin are small, and unit vectors in float32 would round them. Other frames have a shift.
    """
    rows, centers = model._rows(X, weights)
    if rows.frame.unit:
        rows = rows.with_dtype(np.dtype(np.float64))
        C: Any = rows.convert(np.asarray(model.cluster_centers_)).X  # dense, as the centroids are
        centers = rows.prepare(C)
    return rows, centers


def _sums_block(block: Block, labels: Array, k: int) -> Array:
    """Return the sums of the rows of a block by cluster."""
    return cluster_sums(block.X, labels, k)


def _space_of_means(model: Any, source: Source, labels: Array, weights: Array | None) -> ClusterSpace:
    """Return the space of an estimator without centroids, with cluster means in their place."""
    embedding = getattr(model, "embedding_", None)
    rows = Rows.of(source if embedding is None else check_rows(None, embedding, reset=False), weights)
    rows = rows.with_dtype(np.dtype(np.float64))
    k = int(labels.max()) + 1
    with on_threads(rows) as rows:
        sums = np.zeros((k, rows.d))
        for share in rows.map_blocks(_sums_block, k, per_row=(labels,)):
            sums += share
    C = sums / np.maximum(np.bincount(labels, minlength=k), 1)[:, None]
    return ClusterSpace(rows, rows.prepare(C), "rows" if embedding is None else "embedding")


def _display_name(model: Any) -> str:
    """Return the class name of the estimator, followed by that of a wrapped one."""
    name = type(model).__name__
    return f"{name} {_display_name(model.estimator)}" if isinstance(model, Standardized) else name


def _distance_measure(frame: Frame, space: str) -> str:
    """Return the name of the distance measure that the energy sums."""
    if frame.bits:
        return "differing bits"
    measure = "1 - cosine" if frame.unit else "squared distances"
    return measure + {"embedding": " in the embedding", "standardized": " of standardized rows"}.get(space, "")


def _complete_origin(model: Any, origin: Origin) -> Origin:
    """Fill in the seed, the parameters that differ from their defaults, and the versions."""
    seed = getattr(model, "random_state", None)
    defaults = {name: repr(p.default) for name, p in inspect.signature(type(model)).parameters.items()}
    values = {name: repr(value) for name, value in model.get_params(deep=False).items() if name not in ("callback", "verbose")}
    parameters = origin.parameters or {name: value for name, value in values.items() if value != defaults.get(name)}
    seed = int(seed) if origin.seed is None and isinstance(seed, int | np.integer) else origin.seed
    return origin._replace(seed=seed, parameters=parameters, versions=origin.versions or versions())


def _check_energy(model: Any, energy: float, n: int) -> list[str]:
    """Return a warning if the energy differs from `inertia_`, beyond rounding: X or its weights are then not those of fit."""
    inertia = getattr(model, "inertia_", None)
    if inertia is None or not np.isfinite(inertia) or abs(energy - inertia) <= 1e-3 * max(abs(inertia), 1e-300) + 1e-9 * n:
        return []
    return [
        f"The energy of these rows is {energy:.6g}, but the energy of the fit was {float(inertia):.6g}: these are not the rows "
        "of the fit, or their weights differ."
    ]
