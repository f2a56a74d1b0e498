"""`Codes`: rows of packed bits."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils._param_validation import validate_parameter_constraints

from ..data.bits import packed, unpacked, words_for
from ..data.sources import ArraySource
from ..data.statistics import check_finite
from ..data.types import Array
from ..fit.parameters import Count


class Codes(ArraySource):
    """Rows of bits, packed into 64-bit words.

    `np.asarray(codes)` unpacks them to a bool array. Indexing selects rows, as for an array: ``codes[:10]``.

    Parameters
    ----------
    words : ndarray of uint64 of shape (n_samples, ceil(n_bits / 64))
        Packed rows, least significant bit first. Unused bits of the last word must be zero. Arrays and memory maps are used
        without a copy.
    n_bits : int or None, default=None
        Number of bits per row. None for 64 per word.

    Attributes
    ----------
    words : ndarray of uint64 of shape (n_samples, ceil(n_bits / 64))
        Packed rows.
    n_bits : int
        Number of bits per row.
    shape : tuple of int
        Number of rows and number of bits per row.

    See Also
    --------
    LinearCode.encode : Encode rows of numbers.
    shoal.BinaryKMeans : K-means on bits.

    Examples
    --------
    >>> from shoal.binary import Codes
    >>> codes = Codes.pack([[True, False, True], [False, False, True]])
    >>> codes.words
    array([[5],
           [4]], dtype=uint64)
    """

    def __init__(self, words: Any, n_bits: int | None = None) -> None:
        words = np.asanyarray(words)
        if words.dtype != np.uint64 or words.ndim != 2 or 0 in words.shape:
            raise ValueError(
                f"words must be a 2-D uint64 array with one row per code, but has dtype {words.dtype} and shape {words.shape}."
            )
        n_bits = 64 * words.shape[1] if n_bits is None else n_bits
        validate_parameter_constraints({"n_bits": [Count()]}, {"n_bits": n_bits}, caller_name="Codes")
        if words.shape[1] != words_for(n_bits):
            raise ValueError(f"n_bits={n_bits} fill {words_for(n_bits)} words per row, but words has {words.shape[1]} columns.")
        super().__init__(words)
        self.words, self.n_bits = words, int(n_bits)
        self.shape, self.dtype = (len(words), self.n_bits), np.dtype(bool)
        self._check_unused_bits()

    def _check_unused_bits(self) -> None:
        """Raise ValueError if a bit beyond the last one is set: it would count as a difference between rows."""
        used = self.n_bits % 64
        for start in range(0, len(self) if used else 0, 1 << 20):
            unused = self.read(start, start + (1 << 20))[:, -1] >> np.uint64(used)
            if unused.any():
                row = start + int(np.argmax(unused != 0))
                raise ValueError(
                    f"words[{row}] has bits set beyond n_bits={self.n_bits}: unused bits of the last word must be zero."
                )

    @classmethod
    def pack(cls, rows: Any) -> Codes:
        """Pack an array.

        Parameters
        ----------
        rows : array-like of shape (n_samples, n_bits)
            Bool, or numbers, of which positive ones become ones.

        Returns
        -------
        codes : Codes
        """
        array = np.asarray(rows)
        if array.ndim != 2 or array.dtype.kind not in "biuf" or 0 in array.shape:
            raise ValueError(f"rows must be a 2-D array of bool, but has dtype {array.dtype} and shape {array.shape}.")
        check_finite(0, array, "rows")
        return cls(packed(array > 0), array.shape[1])

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> Codes:
        if isinstance(rows, tuple) and rows[1:] not in ((), (...,), (slice(None),)):
            raise IndexError("Codes are indexed by rows only: use np.asarray(codes) to index bits.")
        return Codes(np.atleast_2d(self.words[rows]), self.n_bits)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if copy is False:
            raise ValueError("Codes cannot be converted to an array without a copy: use copy=None.")
        return unpacked(self.words, self.n_bits).astype(dtype or bool, copy=False)

    def __repr__(self) -> str:
        return f"Codes of {len(self)} rows, {self.n_bits} bits each ({self.words.nbytes} bytes)"
