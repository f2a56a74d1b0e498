"""Encode models and states as JSON and arrays, and decode them.

Supported values: numbers, text, lists, dicts, arrays, rows, and the classes of `registry`: estimators, NamedTuples and objects
that name their `parts`. Arrays are named after the attribute that holds them ("cluster_centers_"), classes by their tags.
"""

from __future__ import annotations

import inspect
import math
import re
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator

from ..data.frame import Frame
from ..data.rows import Rows
from ..data.sources import find_source
from ..data.types import Array, is_sparse
from ..exceptions import InvalidModelError
from .registry import class_of, tag_of

MAX_ROW_BYTES = 1 << 32  # bytes of dense rows in a model; larger ones would make the file as large as the data
MAX_INTEGER = 2**63 - 1  # in a model or a checkpoint; conversion of larger ones to float or int64 may overflow
MAX_NAME = 200  # characters of an array's name; the last ones are kept
SKLEARN_ATTRIBUTES = ("_metadata_request", "_skl_callbacks")  # attributes that scikit-learn adds; they are not saved


class Writer:
    """Encodes values as JSON, and collects their arrays."""

    def __init__(self) -> None:
        self.arrays: dict[str, Array] = {}
        self.dropped: list[str] = []  # names of parameters that cannot be saved
        self._names: dict[str, int] = {}  # names of arrays -> number of arrays with that name
        self._known: dict[int, tuple[Any, Any]] = {}  # id -> source and its encoding; several Rows may share a source

    def encode(self, value: Any, what: str) -> Any:
        """Return the value as JSON. A dict of one key that begins with $ stands for something that JSON does not have.

        `what` is the path of attributes to the value: it names arrays, and the place in error messages.
        """
        if value is None or isinstance(value, bool | str):
            return value
        if isinstance(value, np.generic) and value.dtype.kind in "biuf":
            value = value.item()
        if isinstance(value, int):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else {"$float": repr(value)}
        if isinstance(value, np.ndarray):
            return self._array(value, what)
        if is_sparse(value):
            parts = value.tocsr()
            inner = [self._array(getattr(parts, name), f"{what}.{name}") for name in ("data", "indices", "indptr")]
            return {"$csr": [list(value.shape), isinstance(value, sparse.sparray), *inner]}
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            fields = {name: self.encode(getattr(value, name), f"{what}.{name}") for name in value._fields}
            return {"$record": [tag_of(type(value), what), fields]}
        if isinstance(value, list | tuple):
            inner = [self.encode(item, f"{what}.{i}") for i, item in enumerate(value)]
            return {"$tuple": inner} if isinstance(value, tuple) else inner
        if isinstance(value, dict):
            return {"$dict": [[self.encode(k, what), self.encode(v, f"{what}.{k}")] for k, v in value.items()]}
        if isinstance(value, BaseEstimator):
            return self._estimator(value, what)
        if isinstance(value, Rows):
            return {
                "$rows": [
                    self._rows(value, what),
                    self.encode(value.frame, what),
                    value.dtype.newbyteorder("<").str,
                    value.block_rows,
                ]
            }
        if parts := getattr(type(value), "parts", ()):
            return {"$object": [tag_of(type(value), what), {p: self.encode(getattr(value, p), f"{what}.{p}") for p in parts}]}
        raise TypeError(f"{what} is a {type(value).__name__}, which a Shoal file cannot hold: remove it first.")

    def _rows(self, rows: Rows, what: str) -> Any:
        """Encode all rows of the source, once for each source."""
        source, (n, d) = rows.source, rows.source.shape
        if id(source) not in self._known:
            size = n * d * source.dtype.itemsize
            if size > MAX_ROW_BYTES and not rows.is_sparse:
                raise ValueError(
                    f"{what} holds all {n:,} rows of the fit, {size / 1e9:.1f} GB, which is too large for a model: use "
                    "NystromSpectral or LandmarkSpectral, which store a sample of the rows."
                )
            self._known[id(source)] = source, self.encode(source.read(0, n), what)
        return self._known[id(source)][1]

    def _array(self, array: Array, what: str) -> Any:
        """Add an array, and return the reference to it; arrays of strings become JSON."""
        if array.dtype == object and all(isinstance(item, str) for item in array.ravel()):
            return {"$words": [list(array.shape), array.ravel().tolist()]}
        if array.dtype.kind not in "biufSU":
            raise TypeError(f"{what} is an array of {array.dtype}, which a Shoal file cannot hold: remove it first.")
        name = self._new_name(what)
        self.arrays[name] = array
        return {"$array": name}

    def _new_name(self, path: str) -> str:
        """Return a name for an array that no other one has, after the path of attributes to it below the root."""
        base = re.sub(r"[^A-Za-z0-9_]+", ".", path.partition(".")[2] or path).strip(".")[-MAX_NAME:].lstrip(".") or "array"
        same = self._names[base] = self._names.get(base, 0) + 1
        return base if same == 1 else f"{base}-{same}"

    def _estimator(self, model: Any, what: str) -> Any:
        """Encode the parameters and fitted attributes of an estimator."""
        own = model.get_params(deep=False)
        params = {name: self._parameter(value, f"{what}.{name}") for name, value in own.items()}
        params = {name: value for name, value in params.items() if value is not NotImplemented}
        schema = model._fitted_schema()
        attributes = {name: value for name, value in vars(model).items() if name in schema}
        self.dropped += [name for name in vars(model) if name not in {*own, *schema, *SKLEARN_ATTRIBUTES}]
        return {
            "$model": [
                tag_of(type(model), what),
                params,
                {name: self.encode(value, f"{what}.{name}") for name, value in attributes.items()},
            ]
        }

    def _parameter(self, value: Any, name: str) -> Any:
        """Encode a parameter; return NotImplemented if it cannot be saved."""
        if callable(value) or isinstance(value, np.random.RandomState | np.random.Generator):
            self.dropped.append(name.rpartition(".")[2])
            return NotImplemented
        if hasattr(value, "__array__") and not isinstance(value, np.generic | np.ndarray):
            value = np.asarray(value)  # for example, a DataFrame of initial centroids
        return self.encode(value, name)


class Reader:
    """Decodes what `Writer` encoded. The content may come from anybody, so nothing in it is trusted."""

    def __init__(self, arrays: dict[str, Array], name: str) -> None:
        self.arrays, self.name = arrays, name
        self._used: set[str] = set()

    def decode(self, encoded: Any) -> Any:
        """Return the value, or raise `InvalidModelError`."""
        try:
            return self._decode(encoded)
        except InvalidModelError:
            raise
        except Exception as error:
            reason = " ".join(str(error).split())[:200]
            raise InvalidModelError(
                f"{self.name}: holds what Shoal did not write ({type(error).__name__}: {reason}): write it again."
            ) from error

    def _decode(self, encoded: Any) -> Any:
        if isinstance(encoded, list):
            return [self._decode(item) for item in encoded]
        if isinstance(encoded, int) and not -MAX_INTEGER <= encoded <= MAX_INTEGER:  # may overflow when it is converted
            raise ValueError("an integer of more than 64 bits")
        if not isinstance(encoded, dict):
            return encoded
        ((kind, inner),) = encoded.items()
        if kind not in KINDS:
            raise ValueError(f"{kind!r} is not a type of value")
        return getattr(self, f"_{kind[1:]}")(inner)

    def _float(self, text: str) -> float:
        return {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[text]

    def _array(self, name: str) -> Array:
        """Return an array, as a copy if another place refers to it, too: some arrays are modified in place."""
        array = self.arrays[name].copy() if name in self._used else self.arrays[name]
        self._used.add(name)
        return array

    def _words(self, encoded: Any) -> Array:
        shape, words = encoded
        if not all(isinstance(word, str) for word in words):
            raise ValueError("words that are not text")
        return np.array([*words, None], object)[:-1].reshape(shape)

    def _csr(self, encoded: Any) -> Any:
        shape, new, *parts = encoded
        kind = sparse.csr_array if new else sparse.csr_matrix
        X = kind(tuple(self._decode(part) for part in parts), shape=tuple(shape))
        X.check_format(full_check=True)
        return X

    def _tuple(self, items: Any) -> Any:
        return tuple(self._decode(item) for item in items)

    def _dict(self, items: Any) -> Any:
        return {self._decode(key): self._decode(value) for key, value in items}

    def _record(self, encoded: Any) -> Any:
        tag, fields = encoded
        kind = class_of(tag)
        if not (issubclass(kind, tuple) and hasattr(kind, "_fields")):
            raise ValueError(f"{tag} is not a record")
        return kind(**{name: self._decode(value) for name, value in fields.items()})

    def _rows(self, encoded: Any) -> Rows:
        content, *rest = encoded
        shared = isinstance(content, dict) and list(content) == ["$array"]  # without a copy, since rows are never modified
        X = self.arrays[content["$array"]] if shared else self._decode(content)
        frame, dtype, block_rows = self._decode(rest)
        if not isinstance(frame, Frame) or dtype not in ("<f4", "<f8") or not isinstance(block_rows, int) or block_rows < 1:
            raise ValueError("invalid rows")
        return Rows.of(find_source(X), None, frame).with_dtype(np.dtype(dtype)).with_block_rows(block_rows)

    def _object(self, encoded: Any) -> Any:
        tag, parts = encoded
        kind = class_of(tag)
        if sorted(getattr(kind, "parts", ())) != sorted(parts) or not parts:
            raise ValueError(f"{tag} does not have these parts")
        made: Any = object.__new__(kind)
        vars(made).update({name: self._decode(value) for name, value in parts.items()})
        return made

    def _model(self, encoded: Any) -> Any:
        tag, params, attributes = encoded
        kind = class_of(tag)
        if not issubclass(kind, BaseEstimator) or inspect.isabstract(kind) or not hasattr(kind, "_fitted_schema"):
            raise ValueError(f"{tag} is not an estimator")
        model = kind(**{name: self._decode(value) for name, value in params.items()})
        schema = model._fitted_schema()
        for name, value in attributes.items():
            if name not in schema:
                raise ValueError(f"{name!r} is not a fitted attribute")
            setattr(model, name, self._decode(value))
        return model


KINDS = {"$float", "$array", "$words", "$csr", "$tuple", "$dict", "$record", "$rows", "$object", "$model"}
