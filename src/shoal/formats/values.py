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

MOST = 1 << 32  # bytes of rows in a model
LARGEST = 2**63 - 1  # integer in a model or a checkpoint
MAX_NAME = 200  # characters of an array's name, from the end
OUTSIDE = ("_metadata_request", "_skl_callbacks")  # of scikit-learn's: not part of a model


class Writer:
    """Collects the arrays of a value that is encoded."""

    def __init__(self) -> None:
        self.arrays: dict[str, Array] = {}
        self.dropped: list[str] = []  # parameters that no file can hold
        self._names: dict[str, int] = {}  # of arrays, and how many have them
        self._known: dict[int, tuple[Any, Any]] = {}  # sources by their place in memory: several rows may share one

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
        raise TypeError(f"{what} is a {type(value).__name__}, which a file of Shoal's can't hold: take it off first.")

    def _rows(self, rows: Rows, what: str) -> Any:
        """All of them, as they were given."""
        source, (n, d) = rows.source, rows.source.shape
        if id(source) not in self._known:
            size = n * d * source.dtype.itemsize
            if size > MOST and not rows.is_sparse:
                raise ValueError(
                    f"{what} are all {n:,} rows of the fit, {size / 1e9:.1f} GB, which new rows are compared with: too much "
                    "for a model; NystromSpectral and LandmarkSpectral keep a few only."
                )
            self._known[id(source)] = source, self.encode(source.read(0, n), what)
        return self._known[id(source)][1]

    def _array(self, array: Array, what: str) -> Any:
        if array.dtype == object and all(isinstance(item, str) for item in array.ravel()):
            return {"$words": [list(array.shape), array.ravel().tolist()]}
        if array.dtype.kind not in "biufSU":
            raise TypeError(f"{what} is an array of {array.dtype}, which a file of Shoal's can't hold: take it off first.")
        name = self._new_name(what)
        self.arrays[name] = array
        return {"$array": name}

    def _new_name(self, path: str) -> str:
        """Return a name for an array that no other one has, after the path of attributes to it below the root."""
        base = re.sub(r"[^A-Za-z0-9_]+", ".", path.partition(".")[2] or path).strip(".")[-MAX_NAME:].lstrip(".") or "array"
        same = self._names[base] = self._names.get(base, 0) + 1
        return base if same == 1 else f"{base}-{same}"

    def _estimator(self, model: Any, what: str) -> Any:
        own = model.get_params(deep=False)
        params = {name: self._parameter(value, f"{what}.{name}") for name, value in own.items()}
        params = {name: value for name, value in params.items() if value is not NotImplemented}
        schema = model._fitted_schema()
        learned = {name: value for name, value in vars(model).items() if name in schema}
        self.dropped += [name for name in vars(model) if name not in {*own, *schema, *OUTSIDE}]
        return {
            "$model": [
                tag_of(type(model), what),
                params,
                {name: self.encode(value, f"{what}.{name}") for name, value in learned.items()},
            ]
        }

    def _parameter(self, value: Any, name: str) -> Any:
        if callable(value) or isinstance(value, np.random.RandomState | np.random.Generator):
            self.dropped.append(name.rpartition(".")[2])
            return NotImplemented
        if hasattr(value, "__array__") and not isinstance(value, np.generic | np.ndarray):
            value = np.asarray(value)  # a table of starting centres, say
        return self.encode(value, name)


class Reader:
    """Puts the arrays back."""

    def __init__(self, arrays: dict[str, Array], name: str) -> None:
        self.arrays, self.name = arrays, name
        self._used: set[str] = set()

    def decode(self, told: Any) -> Any:
        try:
            return self._decode(told)
        except InvalidModelError:
            raise
        except Exception as error:
            why = " ".join(str(error).split())[:200]
            raise InvalidModelError(
                f"{self.name}: holds what Shoal did not write ({type(error).__name__}: {why}): write it anew."
            ) from error

    def _decode(self, told: Any) -> Any:
        if isinstance(told, list):
            return [self._decode(item) for item in told]
        if isinstance(told, int) and not -LARGEST <= told <= LARGEST:  # which no float may be able to hold
            raise ValueError("an integer of more than 64 bits")
        if not isinstance(told, dict):
            return told
        ((kind, inner),) = told.items()
        if kind not in KINDS:
            raise ValueError(f"{kind!r} is no kind of value")
        return getattr(self, f"_{kind[1:]}")(inner)

    def _float(self, text: str) -> float:
        return {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[text]

    def _array(self, name: str) -> Array:
        """An array of its own for each place that refers to one: some are written to."""
        array = self.arrays[name].copy() if name in self._used else self.arrays[name]
        self._used.add(name)
        return array

    def _words(self, told: Any) -> Array:
        shape, words = told
        if not all(isinstance(word, str) for word in words):
            raise ValueError("words that are none")
        return np.array([*words, None], object)[:-1].reshape(shape)

    def _csr(self, told: Any) -> Any:
        shape, new, *parts = told
        kind = sparse.csr_array if new else sparse.csr_matrix
        X = kind(tuple(self._decode(part) for part in parts), shape=tuple(shape))
        X.check_format(full_check=True)
        return X

    def _tuple(self, items: Any) -> Any:
        return tuple(self._decode(item) for item in items)

    def _dict(self, items: Any) -> Any:
        return {self._decode(key): self._decode(value) for key, value in items}

    def _record(self, told: Any) -> Any:
        tag, fields = told
        kind = class_of(tag)
        if not (issubclass(kind, tuple) and hasattr(kind, "_fields")):
            raise ValueError(f"{tag} is no record")
        return kind(**{name: self._decode(value) for name, value in fields.items()})

    def _rows(self, told: Any) -> Rows:
        content, *rest = told
        shared = isinstance(content, dict) and list(content) == ["$array"]  # rows are only read
        X = self.arrays[content["$array"]] if shared else self._decode(content)
        frame, dtype, block_rows = self._decode(rest)
        if not isinstance(frame, Frame) or dtype not in ("<f4", "<f8") or not isinstance(block_rows, int) or block_rows < 1:
            raise ValueError("rows that are none")
        return Rows.of(find_source(X), None, frame).with_dtype(np.dtype(dtype)).with_block_rows(block_rows)

    def _object(self, told: Any) -> Any:
        tag, parts = told
        kind = class_of(tag)
        if sorted(getattr(kind, "parts", ())) != sorted(parts) or not parts:
            raise ValueError(f"{tag} is not made of these parts")
        made: Any = object.__new__(kind)
        vars(made).update({name: self._decode(value) for name, value in parts.items()})
        return made

    def _model(self, told: Any) -> Any:
        tag, params, learned = told
        kind = class_of(tag)
        if not issubclass(kind, BaseEstimator) or inspect.isabstract(kind) or not hasattr(kind, "_fitted_schema"):
            raise ValueError(f"{tag} is no estimator")
        model = kind(**{name: self._decode(value) for name, value in params.items()})
        schema = model._fitted_schema()
        for name, value in learned.items():
            if name not in schema:
                raise ValueError(f"{name!r} is nothing that a fit learns")
            setattr(model, name, self._decode(value))
        return model


KINDS = {"$float", "$array", "$words", "$csr", "$tuple", "$dict", "$record", "$rows", "$object", "$model"}
