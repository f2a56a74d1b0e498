"""`shoal export`: the centres of a model, for other programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from .options import DATA, debug_option, force_option, json_option


@click.command()
@click.argument("model", type=DATA)
@click.option("--to", "kind", type=click.Choice(["faiss", "safetensors", "csv"]), required=True, help="What to write.")
@click.option("-o", "--output", type=click.Path(), help="The file; beside the model, if none is named.")
@force_option
@json_option
@debug_option
def export(model: str, kind: str, output: str | None, force: bool, as_json: bool) -> None:
    """Write the centres of a MODEL for other programs. As a faiss index, safetensors or csv."""
    import shoal

    from .errors import Turned, opening
    from .output import refuse, show

    path = Path(output) if output is not None else Path(model).with_suffix(f".{kind}")
    refuse(path, force, model)
    with opening(model):
        fitted = shoal.load(model)
    if not hasattr(fitted, "cluster_centers_"):
        raise Turned(f"{model}: is a {type(fitted).__name__}, which has no centres to export: choose a model that has.")
    {"faiss": _faiss, "safetensors": _safetensors, "csv": _csv}[kind](path, fitted)
    k, d = fitted.cluster_centers_.shape
    result = {"model": model, "to": kind, "path": str(path), "clusters": k, "columns": d}
    show(result, as_json, {"centres": f"{k:,} x {d:,}", kind: path})


def _csv(path: Path, model: Any) -> None:
    """In the units of the data."""
    from .output import write_csv

    C = model.cluster_centers_
    names = [str(name) for name in getattr(model, "feature_names_in_", ())]
    if len(names) != C.shape[1]:  # bits have none
        names = [f"x{j}" for j in range(C.shape[1])]
    first = "cluster" if "cluster" not in names else "cluster number"
    write_csv(path, [[first, *names], *([i, *row] for i, row in enumerate(C.tolist()))])


def _safetensors(path: Path, model: Any) -> None:
    """A length, a header in JSON, then the numbers: github.com/huggingface/safetensors, README, "Format"."""
    import numpy as np

    from .output import writing

    C = np.asarray(model.cluster_centers_)
    arrays = {"cluster_centers": C.astype("<f4" if C.dtype in (np.float32, bool) else "<f8")}
    inner = getattr(model, "estimator_", model)
    if inner is not model:
        arrays |= {"mean": model.mean_.astype("<f8"), "scale": model.scale_.astype("<f8")}
    header: dict[str, Any] = {"__metadata__": {"estimator": type(inner).__name__, "metric": str(getattr(inner, "metric", ""))}}
    at = 0
    for name, array in arrays.items():
        kind = "F32" if array.itemsize == 4 else "F64"
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with writing(path) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for array in arrays.values():
            file.write(np.ascontiguousarray(array).tobytes())


def _faiss(path: Path, model: Any) -> None:
    """A flat index: what it finds first is the label."""
    import numpy as np

    from .output import writing

    try:
        import faiss
    except ImportError as error:
        raise click.UsageError("A faiss index needs faiss: pip install 'shoal[faiss]'.") from error
    if hasattr(model, "estimator_") or model.cluster_centers_.dtype == bool:
        raise click.UsageError("Standardized columns and bits mean nothing to a faiss index: export safetensors or csv.")
    C = np.ascontiguousarray(model.cluster_centers_, np.float32)
    index = faiss.IndexFlatIP(C.shape[1]) if model.metric == "cosine" else faiss.IndexFlatL2(C.shape[1])
    index.add(C)
    with writing(path) as file:
        file.write(faiss.serialize_index(index).tobytes())
