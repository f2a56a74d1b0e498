"""The Nyström extension: embed new rows by their affinities to the rows of the fit.

The entry of a row in an eigenvector is the mean of the entries of other rows, weighted by affinity, over the eigenvalue.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from ..data.frame import Frame
from ..data.rows import Rows
from ..data.types import Array
from ..fit import schema
from ..fit.schema import OneOf, Parts, Spec, floats
from .affinity_factory import KERNEL_SPEC, NEIGHBOR_SPEC, PRECOMPUTED_SPEC, OutOfSampleAffinity
from .laplacian import inverse_root


class EmbeddingMap(Protocol):
    """Mapping from rows to their entries in the eigenvectors."""

    def embed(self, new: Rows) -> tuple[Array, Array]:
        """Return the entries of new rows, and a mask of the rows that are not isolated."""


class NystromMap(NamedTuple):
    """Mapping from the affinities a of a row to its entries a P / sqrt(a q)."""

    affinity: OutOfSampleAffinity
    P: Array  # (b, k)
    q: Array  # (b,)

    def embed(self, new: Rows) -> tuple[Array, Array]:
        """Return the entries of new rows, and a mask of the rows that are not isolated."""
        out = self.affinity.out_of_sample_product(new, np.column_stack([self.P, self.q]))
        s = inverse_root(out[:, -1])
        return out[:, :-1] * s[:, None], s > 0


class Extension(NamedTuple):
    """Map of rows to the embedding, for `predict` and `transform`: rows of the fit are recognized, new rows are extended."""

    map: EmbeddingMap
    frame: Frame  # of the rows of the fit
    keys: Array  # (u,) hashes of the distinct rows of the fit, in ascending order; empty for precomputed affinities
    indices: Array  # (u,) row numbers of these rows


def extension_spec(map_spec: Spec) -> Spec:
    """Return the spec of an `Extension` with such a map. Size "u": distinct rows of the fit."""
    keys = schema.ArraySpec(("u",), ("uint64", "int64"), increasing=True, may_be_empty=True)
    indices = schema.ArraySpec(("u",), ("int64",), 0, "n", may_be_empty=True)
    return Parts(Extension, {"map": map_spec, "frame": schema.frame(), "keys": keys, "indices": indices})


def nystrom_map_spec() -> Spec:
    """Return the spec of a `NystromMap`. Sizes: "b" rows that new rows are compared with, "e" eigenvectors."""
    entries = {"P": floats("b", "e"), "q": floats("b")}
    computed = [Parts(NystromMap, {"affinity": affinity, **entries}) for affinity in (KERNEL_SPEC, NEIGHBOR_SPEC)]
    return OneOf((Parts(NystromMap, {"affinity": PRECOMPUTED_SPEC, "P": floats("d", "e"), "q": floats("d")}), *computed))
