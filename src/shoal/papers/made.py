"""Synthetic rows: substitutes for missing data sets, and small deformations of images."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import sparse
from scipy.ndimage import gaussian_filter

from ..data.types import Array

FIELDS = 64  # random displacement fields that deformations are drawn from
SMOOTH, STRENGTH = 4.0, 1.5  # of a field: width of the smoothing filter and standard deviation, in pixels of a 28 x 28 image
IMAGES_AT_ONCE = 10_000  # images deformed at a time; limits memory only


def unit_rows(X: Any) -> Any:
    """Scale sparse rows to unit length."""
    norms = np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel())
    out = sparse.csr_array(sparse.diags_array(1 / np.maximum(norms, 1e-30)) @ X, dtype=np.float32)
    out.indices, out.indptr = out.indices.astype(np.int32), out.indptr.astype(np.int32)  # scikit-learn requires 32-bit indices
    return out


def unequal(n: int = 6000) -> tuple[Array, Array]:
    """Return seven Gaussian clusters of very different sizes in nine columns, a substitute for Shuttle."""
    rng = np.random.default_rng(1)
    y = rng.choice(7, n, p=[0.78, 0.15, 0.05, 0.005, 0.005, 0.005, 0.005])
    X = 0.15 * rng.normal(size=(n, 9)) + 0.4 * rng.normal(size=(7, 9))[y]
    return np.clip(X, -1, 1).astype(np.float32), y


def with_flags(n: int = 8000) -> tuple[Array, Array]:
    """Return ten numeric columns that separate five classes, and 44 binary ones, a substitute for Covertype."""
    rng = np.random.default_rng(2)
    y = rng.integers(5, size=n)
    measures = np.clip(0.5 + 0.1 * rng.normal(size=(n, 10)) + 0.2 * rng.normal(size=(5, 10))[y], 0, 1)
    flags = np.zeros((n, 44))
    for block in (slice(0, 4), slice(4, 44)):
        size = block.stop - block.start
        flags[np.arange(n), block.start + (y + rng.geometric(0.5, n)) % size] = 1
    return np.hstack([measures, flags]).astype(np.float32), y


def histograms(n: int = 20_000) -> tuple[Array, None]:
    """Return rows of 128 mostly small counts around 200 prototypes, a substitute for SIFT descriptors."""
    rng = np.random.default_rng(3)
    prototypes = rng.gamma(0.4, 60, size=(200, 128))
    X = prototypes[rng.integers(200, size=n)] * rng.gamma(4, 0.25, size=(n, 128))
    return np.minimum(X, 255).astype(np.float32), None


def documents(n: int, m: int) -> tuple[Any, Array]:
    """Return sparse unit rows of about 20 out of 4000 words, whose frequencies depend on one of m topics."""
    rng = np.random.default_rng(4)
    d, words = 4000, 20
    y = rng.integers(m, size=n)
    own = (rng.exponential(d / m / 2, (n, words)).astype(np.int64) + (y * d // m)[:, None]) % d
    columns = np.where(rng.random((n, words)) < 0.5, own, rng.integers(d, size=(n, words)))
    X = sparse.csr_array((np.ones(n * words, np.float32), (np.repeat(np.arange(n), words), columns.ravel())), shape=(n, d))
    X.data = 1 + np.log(X.data)
    return unit_rows(X), y


def deformed(X: Array, n: int, seed: int = 0) -> Array:
    """Return n square images: those of X, each repeated with different small random deformations.

    A first-order version of INFMNIST (G. Loosli, S. Canu, L. Bottou 2007): the image plus its gradient times a smooth random
    displacement field.
    """
    rng, side = np.random.default_rng(seed), math.isqrt(X.shape[1])
    fields = gaussian_filter(rng.normal(size=(FIELDS, 2, side, side)), (0, 0, SMOOTH * side / 28, SMOOTH * side / 28))
    fields *= STRENGTH * side / 28 / fields.std()
    out = np.empty((n, X.shape[1]), np.float32)
    for a in range(0, n, IMAGES_AT_ONCE):
        ids = np.arange(a, min(a + IMAGES_AT_ONCE, n))
        images = X[ids % len(X)].reshape(-1, side, side)
        slopes = np.stack(np.gradient(images, axis=(1, 2)), axis=1)
        moved = images + (fields[rng.integers(FIELDS, size=len(ids))] * slopes).sum(axis=1)
        out[ids] = np.clip(moved, 0, X.max()).reshape(len(ids), -1)
    return out
