"""`shoal export`: write the centroids of a model for other programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from .options import DATA, debug_option, force_option, json_option

MAX_FAISS_EXPONENT = 60  # centroids below 2^60: their squared distances in a few thousand columns fit into float32
MIN_FAISS_DISTANCE = 2.0**-60  # of two centroids, so that squares of smaller distances to rows do not underflow either
MAX_FAISS_MOVEMENT = 1e-3  # of a centroid by rounding to float32, as a share of the distance to the nearest other centroid


@click.command(short_help="Export centroids as a faiss index, safetensors, csv or parquet.")
@click.argument("model", type=DATA)
@click.option("--to", "kind", type=click.Choice(["faiss", "safetensors", "csv", "parquet"]), required=True, help="File format.")
@click.option("-o", "--output", type=click.Path(), help="Output file.  [default: next to the model]")
@force_option
@json_option
@debug_option
def export(model: str, kind: str, output: str | None, force: bool, as_json: bool) -> None:
    """Export the centroids of a MODEL as a faiss index, safetensors, csv or parquet.

    MODEL is a model file, or the folder of a fit.

    Example: shoal export out --to csv -o centroids.csv
    """
    import shoal

    from .data import find_model
    from .errors import RejectedFileError, reporting_open_errors
    from .output import check_output_file, show

    model = find_model(model)
    path = Path(output) if output is not None else Path(model).with_suffix(f".{kind}")
    check_output_file(path, force, model)
    with reporting_open_errors(model):
        fitted = shoal.load(model)
    if not hasattr(fitted, "cluster_centers_"):
        raise RejectedFileError(
            f"{model}: holds a {type(fitted).__name__}, which has no centroids to export: name another model."
        )
    {"faiss": _faiss, "safetensors": _safetensors, "csv": _csv, "parquet": _parquet}[kind](path, fitted)
    k, d = fitted.cluster_centers_.shape
    result = {"model": model, "to": kind, "path": str(path), "clusters": k, "columns": d}
    show(result, as_json, {"centroids": f"{k:,} x {d:,}", kind: path})


def _csv(path: Path, model: Any) -> None:
    """Write the centroids as CSV, in the units of the data."""
    from .output import write_csv

    columns = _columns(model)
    write_csv(path, [list(columns), *map(list, zip(*(column.tolist() for column in columns.values()), strict=True))])


def _columns(model: Any) -> dict[str, Any]:
    """Return the columns of a table of centroids: their numbers, their parents in the levels above, and their coordinates."""
    import numpy as np

    C = np.asarray(model.cluster_centers_)
    names = [str(name) for name in getattr(model, "feature_names_in_", ())]
    if len(names) != C.shape[1]:  # binary codes have no column names
        names = [f"x{j}" for j in range(C.shape[1])]
    columns: dict[str, Any] = {"cluster": np.arange(len(C))}
    above = np.arange(len(C))
    levels = getattr(model, "levels_", ())
    for number in range(len(levels) - 1, 0, -1):
        above = levels[number].parents[above]
        columns[f"parent {number - 1}"] = above
    own = {name if name not in names else f"{name} number": column for name, column in columns.items()}
    return {**own, **{name: C[:, j] for j, name in enumerate(names)}}


def _parquet(path: Path, model: Any) -> None:
    """Write the centroids as a Parquet file, with the columns of the CSV file."""
    from .output import open_atomic

    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise click.UsageError("A Parquet file needs pyarrow: pip install 'shoal[parquet]'.") from error
    columns = _columns(model)
    table = pyarrow.Table.from_arrays([pyarrow.array(column) for column in columns.values()], names=list(columns))
    with open_atomic(path) as file:
        pyarrow.parquet.write_table(table, file)


def _safetensors(path: Path, model: Any) -> None:
    """Write a length, a JSON header, then the values: github.com/huggingface/safetensors, README, "Format"."""
    import numpy as np

    from .output import open_atomic

    C = np.asarray(model.cluster_centers_)
    arrays = {"cluster_centers": C.astype("<f4" if C.dtype in (np.float32, bool) else "<f8")}
    inner = getattr(model, "estimator_", model)
    for number, level in enumerate(getattr(inner, "levels_", ())):  # coarsest first
        arrays[f"parents.{number}"] = level.parents.astype("<i4")
        if number + 1 < len(inner.levels_):
            arrays[f"centers.{number}"] = level.centers.astype("<f4" if level.centers.dtype == np.float32 else "<f8")
    if inner is not model:
        arrays |= {"mean": model.mean_.astype("<f8"), "scale": model.scale_.astype("<f8")}
    header: dict[str, Any] = {"__metadata__": {"estimator": type(inner).__name__, "metric": str(getattr(inner, "metric", ""))}}
    offset = 0
    for name, array in arrays.items():
        kind = {"<f4": "F32", "<f8": "F64", "<i4": "I32"}[array.dtype.str]
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open_atomic(path) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for array in arrays.values():
            file.write(np.ascontiguousarray(array).tobytes())


def _check_single_precision(centers: Any, single: Any, neighbors: Any = None) -> None:
    """Raise a usage error if an index of float32 centroids would find other nearest centroids than the model.

    `neighbors` are the centroids near each centroid, if they are known.
    """
    import numpy as np

    from ..data.blocks import DenseBlock, nearest_others

    remedy = "export safetensors or csv, or fit on rows that are centered and scaled"
    exponent = int(np.frexp(np.abs(centers).max())[1])
    if exponent > MAX_FAISS_EXPONENT:
        raise click.UsageError(
            f"A faiss index squares centroids in float32, which overflows for values of 2^{exponent - 1} and more: {remedy}."
        )
    scaled = np.ldexp(centers, -exponent)
    distinct, position = np.unique(scaled, axis=0, return_inverse=True)
    if len(distinct) < 2:
        return
    distinct -= distinct.mean(axis=0)
    block, every = DenseBlock(distinct), np.arange(len(distinct))
    prepared = block.prepare(distinct)
    if neighbors is None:
        squares = block.pair_distances(every, nearest_others(block, every, prepared), prepared)
    else:
        squares = np.full(len(distinct), np.inf)
        for column in position.ravel()[neighbors].T:
            far = block.pair_distances(position.ravel(), column, prepared)
            np.minimum.at(squares, position.ravel(), np.where(far > 0, far, np.inf))
        squares[np.isinf(squares)] = squares.max(initial=1.0, where=np.isfinite(squares))
    distances = np.sqrt(squares)[position.ravel()]
    moved = np.linalg.norm(np.ldexp(single.astype(np.float64), -exponent) - scaled, axis=1)
    if (moved > MAX_FAISS_MOVEMENT * distances).any():
        worst = int((moved - MAX_FAISS_MOVEMENT * distances).argmax())
        raise click.UsageError(
            f"A faiss index holds float32, which moves centroid {worst} by more than {MAX_FAISS_MOVEMENT} of its distance to "
            f"the nearest other one: {remedy}."
        )
    if np.ldexp(distances.min(), exponent) < MIN_FAISS_DISTANCE:
        raise click.UsageError(
            f"A faiss index squares distances in float32, which underflows for centroid {int(distances.argmin())} and the "
            f"nearest other one: {remedy}."
        )


def _faiss(path: Path, model: Any) -> None:
    """Write a flat index. The nearest neighbor of a row is its label."""
    import numpy as np

    from .output import open_atomic

    try:
        import faiss
    except ImportError as error:
        raise click.UsageError("A faiss index needs faiss: pip install 'shoal[faiss]'.") from error
    if hasattr(model, "estimator_") or model.cluster_centers_.dtype == bool:
        raise click.UsageError(
            "A faiss index does not support standardized columns or binary codes: export safetensors or csv."
        )
    with np.errstate(over="ignore", under="ignore"):
        C = np.ascontiguousarray(model.cluster_centers_, np.float32)
    _check_single_precision(np.asarray(model.cluster_centers_, np.float64), C, getattr(model, "neighbors_", None))
    index = faiss.IndexFlatIP(C.shape[1]) if model.metric == "cosine" else faiss.IndexFlatL2(C.shape[1])
    index.add(C)
    with open_atomic(path) as file:
        file.write(faiss.serialize_index(index).tobytes())
