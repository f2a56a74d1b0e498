"""`LinearCode`: codes whose bits are the sides of hyperplanes that a row lies on."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from sklearn.utils._param_validation import validate_parameter_constraints

from ..data.bits import packed, words_for
from ..data.rows import Rows, working_dtype
from ..data.statistics import check_values
from ..data.types import Array, is_sparse
from ..execution.threads import on_threads
from ..fit.input import check_rows
from ..fit.parameters import MAX_THREADS, Count
from ..fit.schema import Number, OneOf, Parts, doubles, floats
from ..kernels import bits
from .codes import Codes

MAX_NUMBERS_PER_PIECE = 1 << 18  # numbers of a block encoded at a time, so that they stay in the cache


class LinearCode(NamedTuple):
    """Code whose bit j is 1 if ``(x - mean) @ W[:, j]`` is above ``offsets[j]``. Returned by `lsh` and `itq`.

    Attributes
    ----------
    mean : ndarray of shape (n_features,)
        Point that is subtracted from rows, in float64.
    W : ndarray of shape (n_features, n_bits)
        Normals of the hyperplanes, in float32.
    offsets : float or ndarray of shape (n_bits,)
        Thresholds.

    Notes
    -----
    Bits are decided by float64 sums in the order of the columns; matrix products only settle clear cases. The code of a row
    therefore does not depend on the other rows, the layout (dense or sparse) or the number of threads.

    Examples
    --------
    >>> import numpy as np
    >>> from shoal.binary import LinearCode
    >>> code = LinearCode(np.zeros(2), np.eye(2, dtype=np.float32))
    >>> code.decode(code.encode([[1.0, -3.0]]))
    array([[ 1, -1]], dtype=int8)
    """

    mean: Array
    W: Array
    offsets: Array | float = 0.0

    @property
    def n_bits(self) -> int:
        """Number of bits per row."""
        return int(self.W.shape[1])

    def encode(self, X: Any, *, n_threads: int | None = None) -> Codes:
        """Encode the rows of X, block by block.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (n_samples, n_features)
            Rows of finite real numbers.
        n_threads : int or None, default=None
            Number of threads; None for all cores. Does not affect the result.

        Returns
        -------
        codes : Codes
            Codes of the rows.
        """
        rules = {"n_threads": [Count(MAX_THREADS), None]}
        validate_parameter_constraints(rules, {"n_threads": n_threads}, caller_name="encode")
        LINEAR_CODE.check(self, "code", {})
        source = check_rows(None, X, reset=False)
        if source.shape[1] != len(self.W):
            raise ValueError(
                f"X has {source.shape[1]} features, but the code was made for {len(self.W)}: pass rows with the same columns."
            )
        with on_threads(Rows.of(source), n_threads) as rows:
            return self.encode_rows(rows)

    def encode_rows(self, rows: Rows) -> Codes:
        """Encode validated rows, scaled to unit length if their frame is that of the cosine metric."""
        words = np.empty((len(rows), words_for(self.n_bits)), np.uint64)
        rows.for_each_raw(_encode_block, rows, _encoder(self), per_row=(words,))
        return Codes(words, self.n_bits)

    def decode(self, codes: Codes) -> Array:
        """Return codes as an array of -1 and +1. (`np.asarray(codes)` returns bool.)

        Parameters
        ----------
        codes : Codes
            Codes returned by `encode`.

        Returns
        -------
        signs : ndarray of int8 of shape (n_samples, n_bits)
        """
        if not isinstance(codes, Codes) or codes.n_bits != self.n_bits:
            raise ValueError(f"codes must be Codes of {self.n_bits} bits, as returned by `encode`.")
        return np.where(np.asarray(codes), np.int8(1), np.int8(-1))


LINEAR_CODE = Parts(
    LinearCode,
    {"mean": doubles("d"), "W": floats("d", "r"), "offsets": OneOf((Number(), doubles("r")))},
)


class _Encoder(NamedTuple):
    """Arrays that encode blocks, prepared once per pass."""

    mean: Array
    W: Array  # (d, r) contiguous
    W_T: Array  # (r, d) contiguous
    offsets: Array  # (r) float64
    thresholds: Array  # (r) float64: mean @ w + offset, for rows that are not centered
    max_norm: float  # of the columns of W


def _encoder(code: LinearCode) -> _Encoder:
    W_T = np.ascontiguousarray(code.W.T)
    thresholds = np.empty((1, len(W_T)))
    bits.dots(code.mean[None], W_T, thresholds)
    max_norm = float(np.linalg.norm(W_T.astype(np.float64), axis=1).max())
    offsets = np.broadcast_to(np.asarray(code.offsets, np.float64), len(W_T))
    return _Encoder(code.mean, np.ascontiguousarray(code.W), W_T, offsets, thresholds[0] + offsets, max_norm)


def _encode_block(start: int, raw: Any, words: Array, rows: Rows, code: _Encoder) -> None:
    """Write the packed codes of one block to `words`."""
    with np.errstate(over="ignore", invalid="ignore"):
        check_values(start, raw, rows.frame.unit)
        if rows.frame.unit:
            raw = rows.convert(raw).X
        if is_sparse(raw):
            bits.sparse_signs(raw.data, raw.indices, raw.indptr, code.W, code.thresholds, words)
            return
        dtype = working_dtype(raw.dtype)
        W, offsets = code.W.astype(dtype, copy=False), code.offsets.astype(dtype)
        step = max(64, MAX_NUMBERS_PER_PIECE // raw.shape[1])
        for a in range(0, len(raw), step):
            X = np.ascontiguousarray(raw[a : a + step], dtype)
            Y, norms = np.empty_like(X), np.empty(len(X))
            bits.center(X, code.mean, Y, norms)
            S = Y @ W
            S -= offsets
            words[a : a + step] = packed(S > 0)
            np.abs(S, out=S)
            is_clear = (_margins(norms, code, dtype)[:, None] < S) & (np.inf > S)
            bits.settle_signs(packed(~is_clear), X, code.W_T, code.thresholds, words[a : a + step])


def _margins(norms: Array, code: _Encoder, dtype: np.dtype) -> Array:
    """Return, per row, a bound on the difference of a product and the float64 sum that decides, from the rounding of both."""
    d, digits, fine = len(code.mean) + 8, np.finfo(dtype), np.finfo(np.float64)
    sums = d * float(fine.eps) * (norms + 2 * np.abs(code.mean).sum())
    margins = (d * float(digits.eps) / 2 * norms + sums) * code.max_norm + d * 4 * float(digits.smallest_subnormal)
    rounded_up: Array = np.nextafter(margins.astype(dtype), np.inf, dtype=dtype)
    return rounded_up
