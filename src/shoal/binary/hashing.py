"""Codes that are not learned from clusters: random hyperplanes (LSH) and rotated principal directions (ITQ).

M. S. Charikar (2002), Similarity estimation techniques from rounding algorithms, doi:10.1145/509907.509965 (LSH).
Y. Gong, S. Lazebnik (2011), Iterative quantization: a Procrustean approach to learning binary codes,
doi:10.1109/CVPR.2011.5995432 (ITQ).

Differs from the papers: all hyperplanes pass through the mean of the rows, in LSH as well. ITQ is learned from a sample. If
there are more bits than columns, its rotation becomes a matrix with orthonormal rows, which solves the same Procrustes problem.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.utils._param_validation import validate_parameter_constraints

from ..data.rows import Rows
from ..execution.threads import on_threads
from ..fit.input import check_rows
from ..fit.parameters import MAX_THREADS, Count
from ..fit.random_streams import generator, resolve_seed
from .linear_code import LinearCode
from .sample import Sample, draw, principal

MAX_SAMPLE_ROWS, MIN_SAMPLE_ROWS = 8192, 512  # rows that a code is made from
MAX_SAMPLE_NUMBERS = 1 << 22  # numbers of these rows, if they are dense: fewer rows are used if they are wide
ITQ_ITERATIONS = 50  # as in the paper


def _sample(rows: Rows, rng: np.random.Generator) -> Sample:
    """Draw the rows that a code is made from."""
    per_numbers = int(np.clip(MAX_SAMPLE_NUMBERS // rows.d, MIN_SAMPLE_ROWS, MAX_SAMPLE_ROWS))
    size = MAX_SAMPLE_ROWS if rows.is_sparse else per_numbers
    return draw(rows, size, rng)


def random_code(rows: Rows, r: int, rng: np.random.Generator) -> LinearCode:
    """Return a code of r hyperplanes with normally distributed normals (LSH)."""
    return LinearCode(_sample(rows, rng).mean, rng.standard_normal((rows.d, r), np.float32))


def rotated_code(rows: Rows, r: int, rng: np.random.Generator) -> LinearCode:
    """Return a code of r principal directions, rotated so that the rows lie near the vertices of a hypercube (ITQ)."""
    sample = _sample(rows, rng)
    centered = sample.centered()
    basis, w = principal(centered, min(r, rows.d), rng), centered.weights[:, None].astype(np.float32)
    V = centered.along(basis)
    Q = np.linalg.qr(rng.standard_normal((r, basis.shape[1]), np.float32))[0].T
    for _ in range(ITQ_ITERATIONS):
        U, _, T = np.linalg.svd(V.T @ np.where(V @ Q > 0, w, -w), full_matrices=False)
        Q = U @ T
    return LinearCode(sample.mean, basis @ Q)


def _make_code(
    name: str, make: Callable[..., LinearCode], X: Any, n_bits: int, random_state: Any, n_threads: int | None
) -> LinearCode:
    """Validate the arguments of a public function and call `make`."""
    given = {"n_bits": n_bits, "random_state": random_state, "n_threads": n_threads}
    rules = {"n_bits": [Count()], "random_state": ["random_state", np.random.Generator]}
    rules["n_threads"] = [Count(MAX_THREADS), None]
    validate_parameter_constraints(rules, given, caller_name=name)
    with on_threads(Rows.of(check_rows(None, X, reset=False)), n_threads) as rows:
        return make(rows, n_bits, generator(resolve_seed(random_state)))


def lsh(X: Any, n_bits: int = 128, *, random_state: Any = None, n_threads: int | None = None) -> LinearCode:
    """Make a code by locality-sensitive hashing: random hyperplanes through the mean of the rows.

    The expected number of bits in which two rows differ grows with the angle between them, seen from the mean.

    Parameters
    ----------
    X : array, sparse matrix or table of shape (n_samples, n_features)
        Rows of finite real numbers. The mean is estimated from at most 8192 of them.
    n_bits : int, default=128
        Number of bits. It may exceed the number of columns.
    random_state : int, RandomState, Generator or None, default=None
        Seed of the random numbers. Pass an int for reproducible results.
    n_threads : int or None, default=None
        Number of threads; None for all cores. Does not affect the result.

    Returns
    -------
    code : LinearCode
        Code whose `encode` returns the codes of rows.

    See Also
    --------
    itq : Code that is fitted to the rows.

    References
    ----------
    M. S. Charikar (2002), Similarity estimation techniques from rounding algorithms, doi:10.1145/509907.509965.

    Examples
    --------
    >>> import numpy as np
    >>> from shoal import binary
    >>> X = np.random.default_rng(0).normal(size=(100, 8))
    >>> binary.lsh(X, n_bits=32, random_state=0).encode(X)
    Codes of 100 rows, 32 bits each (800 bytes)
    """
    return _make_code("lsh", random_code, X, n_bits, random_state, n_threads)


def itq(X: Any, n_bits: int = 128, *, random_state: Any = None, n_threads: int | None = None) -> LinearCode:
    """Make a code by iterative quantization: principal directions, rotated to minimize the quantization error of their signs.

    Parameters
    ----------
    X : array, sparse matrix or table of shape (n_samples, n_features)
        Rows of finite real numbers. The code is learned from at most 8192 of them.
    n_bits : int, default=128
        Number of bits. It may exceed the number of columns.
    random_state : int, RandomState, Generator or None, default=None
        Seed of the random numbers. Pass an int for reproducible results.
    n_threads : int or None, default=None
        Number of threads; None for all cores. Does not affect the result.

    Returns
    -------
    code : LinearCode
        Code whose `encode` returns the codes of rows.

    See Also
    --------
    lsh : Random hyperplanes, which need no learning.

    Notes
    -----
    Learning takes about a second. Distances between the codes follow those between the rows more closely than with `lsh` and
    the same number of bits.

    References
    ----------
    Y. Gong, S. Lazebnik (2011), Iterative quantization: a Procrustean approach to learning binary codes,
    doi:10.1109/CVPR.2011.5995432.

    Examples
    --------
    >>> import numpy as np
    >>> from shoal import binary
    >>> X = np.random.default_rng(0).normal(size=(100, 8))
    >>> binary.itq(X, n_bits=8, random_state=0).encode(X)
    Codes of 100 rows, 8 bits each (800 bytes)
    """
    return _make_code("itq", rotated_code, X, n_bits, random_state, n_threads)
