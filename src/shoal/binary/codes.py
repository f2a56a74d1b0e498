"""Codes: rows as short strings of bits, each the side of a hyperplane that a row lies on.

M. S. Charikar (2002), Similarity estimation techniques from rounding algorithms, doi:10.1145/509907.509965 (LSH).
Y. Gong, S. Lazebnik (2011), Iterative quantization: a Procrustean approach to learning binary codes,
doi:10.1109/CVPR.2011.5995432 (ITQ).
Differs from the papers: all hyperplanes go through the mean of the rows, in LSH too. ITQ is learned from a sample, and
where there are more bits than columns, its rotation gives way to as many directions whose rows are orthonormal: the same
Procrustes problem has the same solution then.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from sklearn.utils._param_validation import validate_parameter_constraints

from ..data.bits import packed, unpacked, words_for
from ..data.rows import Rows, working_dtype
from ..data.sources import ArraySource
from ..data.statistics import check_finite, check_values
from ..data.types import Array, is_sparse
from ..execution.threads import on_threads
from ..fit.input import check_rows
from ..fit.parameters import MAX_THREADS, Count
from ..fit.random_streams import generator, resolve_seed
from ..fit.schema import Number, OneOf, Parts, doubles, floats
from ..kernels import bits
from .sample import Sample, draw, principal

SAMPLE, SAMPLE_NUMBERS, SAMPLE_LEAST = 8192, 1 << 22, 512  # rows to learn from; fewer of wide ones, but no fewer than this
PIECE_NUMBERS = 1 << 18  # of a block, at a time: they should stay in the cache
ROUNDS = 50  # of ITQ, as in the paper


class Codes(ArraySource):
    """Rows of bits, packed: 64 in a word, the first in its lowest place, what is left of the last word zero.

    `np.asarray(codes)` unpacks them to an array of bool. Parts are taken as from an array of rows: `codes[:10]`.

    Parameters
    ----------
    words : uint64 array of shape (n_samples, ceil(n_bits / 64))
        Kept as it is, a memory map as well; nothing is copied.
    n_bits : int or None, default=None
        How many bits a row has; None for all that there is room for.

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
            raise ValueError(f"words must be a uint64 array, one row a code, but are {words.dtype} of shape {words.shape}.")
        n_bits = 64 * words.shape[1] if n_bits is None else n_bits
        validate_parameter_constraints({"n_bits": [Count()]}, {"n_bits": n_bits}, caller_name="Codes")
        if words.shape[1] != words_for(n_bits):
            raise ValueError(f"n_bits={n_bits} fill {words_for(n_bits)} words, but words has {words.shape[1]} columns.")
        super().__init__(words)
        self.words, self.n_bits = words, int(n_bits)
        self.shape, self.dtype = (len(words), self.n_bits), np.dtype(bool)
        self._check_the_rest()

    def _check_the_rest(self) -> None:
        used = self.n_bits % 64
        for start in range(0, len(self) if used else 0, 1 << 20):
            rest = self.read(start, start + (1 << 20))[:, -1] >> np.uint64(used)
            if rest.any():
                row = start + int(np.argmax(rest != 0))
                raise ValueError(f"words[{row}] has bits set beyond n_bits={self.n_bits}: what is left of a word must be zero.")

    @classmethod
    def pack(cls, rows: Any) -> Codes:
        """From an array of bool (or of numbers, of which those above zero are ones) of shape (n_samples, n_bits)."""
        array = np.asarray(rows)
        if array.ndim != 2 or array.dtype.kind not in "biuf" or 0 in array.shape:
            raise ValueError(f"rows must be a 2-D array of bool, but is of type {array.dtype} and shape {array.shape}.")
        check_finite(0, array, "rows")
        return cls(packed(array > 0), array.shape[1])

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> Codes:
        if isinstance(rows, tuple) and rows[1:] not in ((), (...,), (slice(None),)):
            raise IndexError("Codes are taken by rows: np.asarray(codes) gives their bits as an array.")
        return Codes(np.atleast_2d(self.words[rows]), self.n_bits)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if copy is False:
            raise ValueError("Packed bits can't be seen as an array without a copy.")
        return unpacked(self.words, self.n_bits).astype(dtype or bool, copy=False)

    def __repr__(self) -> str:
        return f"Codes of {len(self)} rows, {self.n_bits} bits each ({self.words.nbytes} bytes)"


class LinearCode(NamedTuple):
    """A code whose bit j is 1 where (x - mean) . W[:, j] is above offsets[j]. `lsh` and `itq` make such codes.

    The sums that decide are float64, in the order of the columns; float32 products only tell where there is no doubt. So
    a row has the same code alone or among others, dense or sparse, on one thread or many.
    """

    mean: Array  # (n_features) float64
    W: Array  # (n_features, n_bits) float32
    offsets: Array | float = 0.0  # (n_bits) float64

    @property
    def n_bits(self) -> int:
        return int(self.W.shape[1])

    def encode(self, X: Any, *, n_threads: int | None = None) -> Codes:
        """The codes of the rows of X, read block by block.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (n_samples, n_features)
            Real numbers, finite.
        n_threads : int or None, default=None
            Threads to use; None for as many as there are CPUs. The result does not depend on it.

        Returns
        -------
        codes : Codes
        """
        rules = {"n_threads": [Count(MAX_THREADS), None]}
        validate_parameter_constraints(rules, {"n_threads": n_threads}, caller_name="encode")
        LINEAR_CODE.check(self, "code", {})
        source = check_rows(None, X, reset=False)
        if source.shape[1] != len(self.W):
            raise ValueError(f"X has {source.shape[1]} features, but the code was made for {len(self.W)}: they must agree.")
        with on_threads(Rows.of(source), n_threads) as rows:
            return self.encode_rows(rows)

    def encode_rows(self, rows: Rows) -> Codes:
        """The same of opened rows, as they are in their source, or scaled to unit length if their frame says so."""
        words = np.empty((len(rows), words_for(self.n_bits)), np.uint64)
        rows.for_each_raw(_encode_block, rows, _ready(self), per_row=(words,))
        return Codes(words, self.n_bits)

    def decode(self, codes: Codes) -> Array:
        """Codes as an int8 array (n_samples, n_bits) of -1 and +1. (`np.asarray(codes)` gives bool.)"""
        if not isinstance(codes, Codes) or codes.n_bits != self.n_bits:
            raise ValueError(f"codes must be Codes of {self.n_bits} bits, as `encode` gives them.")
        return np.where(np.asarray(codes), np.int8(1), np.int8(-1))


LINEAR_CODE = Parts(
    LinearCode,
    {"mean": doubles("d"), "W": floats("d", "r"), "offsets": OneOf((Number(), doubles("r")))},
)


class _Ready(NamedTuple):
    """A code, made ready for work."""

    mean: Array
    W: Array  # (d, r)
    across: Array  # (r, d)
    offsets: Array  # (r) float64
    heights: Array  # (r) float64: mean.w + offset
    longest: float  # of the directions


def _ready(code: LinearCode) -> _Ready:
    across = np.ascontiguousarray(code.W.T)
    heights = np.empty((1, len(across)))
    bits.dots(code.mean[None], across, heights)
    longest = float(np.linalg.norm(across.astype(np.float64), axis=1).max())
    offsets = np.broadcast_to(np.asarray(code.offsets, np.float64), len(across))
    return _Ready(code.mean, np.ascontiguousarray(code.W), across, offsets, heights[0] + offsets, longest)


def _encode_block(start: int, raw: Any, words: Array, rows: Rows, code: _Ready) -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        check_values(start, raw, rows.frame.unit)
        if rows.frame.unit:
            raw = rows.convert(raw).X
        if is_sparse(raw):
            bits.sparse_signs(raw.data, raw.indices, raw.indptr, code.W, code.heights, words)
            return
        dtype = working_dtype(raw.dtype)
        W, offsets = code.W.astype(dtype, copy=False), code.offsets.astype(dtype)
        step = max(64, PIECE_NUMBERS // raw.shape[1])
        for a in range(0, len(raw), step):
            X = np.ascontiguousarray(raw[a : a + step], dtype)
            Y, norms = np.empty_like(X), np.empty(len(X))
            bits.center(X, code.mean, Y, norms)
            S = Y @ W
            S -= offsets
            words[a : a + step] = packed(S > 0)
            np.abs(S, out=S)
            sure = (_margins(norms, code, dtype)[:, None] < S) & (np.inf > S)
            bits.settle_signs(packed(~sure), X, code.across, code.heights, words[a : a + step])


def _margins(norms: Array, code: _Ready, dtype: np.dtype) -> Array:
    """How far a score may be off the sum that decides, at most: its own rounding, and that of the sum in float64."""
    d, digits, fine = len(code.mean) + 8, np.finfo(dtype), np.finfo(np.float64)
    sums = d * float(fine.eps) * (norms + 2 * np.abs(code.mean).sum())
    margins = (d * float(digits.eps) / 2 * norms + sums) * code.longest + d * 4 * float(digits.smallest_subnormal)
    rounded_up: Array = np.nextafter(margins.astype(dtype), np.inf, dtype=dtype)
    return rounded_up


def _learning_set(rows: Rows, rng: np.random.Generator) -> Sample:
    size = SAMPLE if rows.is_sparse else int(np.clip(SAMPLE_NUMBERS // rows.d, SAMPLE_LEAST, SAMPLE))
    return draw(rows, size, rng)


def random_code(rows: Rows, r: int, rng: np.random.Generator) -> LinearCode:
    """Hyperplanes in random directions."""
    return LinearCode(_learning_set(rows, rng).mean, rng.standard_normal((rows.d, r), np.float32))


def rotated_code(rows: Rows, r: int, rng: np.random.Generator) -> LinearCode:
    """Principal directions, turned so that the rows lie near the corners of a cube."""
    sample = _learning_set(rows, rng)
    centered = sample.centered()
    basis, w = principal(centered, min(r, rows.d), rng), centered.weights[:, None].astype(np.float32)
    V = centered.along(basis)
    Q = np.linalg.qr(rng.standard_normal((r, basis.shape[1]), np.float32))[0].T
    for _ in range(ROUNDS):
        U, _, T = np.linalg.svd(V.T @ np.where(V @ Q > 0, w, -w), full_matrices=False)
        Q = U @ T
    return LinearCode(sample.mean, basis @ Q)


def _made(name: str, make: Any, X: Any, n_bits: int, random_state: Any, n_threads: int | None) -> LinearCode:
    given = {"n_bits": n_bits, "random_state": random_state, "n_threads": n_threads}
    rules = {"n_bits": [Count()], "random_state": ["random_state", np.random.Generator]}
    rules["n_threads"] = [Count(MAX_THREADS), None]
    validate_parameter_constraints(rules, given, caller_name=name)
    with on_threads(Rows.of(check_rows(None, X, reset=False)), n_threads) as rows:
        code: LinearCode = make(rows, n_bits, generator(resolve_seed(random_state)))
        return code


def lsh(X: Any, n_bits: int = 128, *, random_state: Any = None, n_threads: int | None = None) -> LinearCode:
    """A code by locality-sensitive hashing: random hyperplanes through the mean. The nearer two rows, the fewer bits differ.

    Parameters
    ----------
    X : array, sparse matrix or table of shape (n_samples, n_features)
        Real numbers, finite. Of many rows, a sample is looked at.
    n_bits : int, default=128
        Length of the code; it may be more than there are columns.
    random_state : int, RandomState, Generator or None, default=None
        Seed of the random numbers.
    n_threads : int or None, default=None
        Threads to use; None for as many as there are CPUs. The result does not depend on it.

    Returns
    -------
    code : LinearCode
    """
    return _made("lsh", random_code, X, n_bits, random_state, n_threads)


def itq(X: Any, n_bits: int = 128, *, random_state: Any = None, n_threads: int | None = None) -> LinearCode:
    """A code by iterative quantization: principal directions, turned so that signs lose as little as they can.

    It takes a second to learn and tells more of the rows than `lsh` with as many bits. With more bits than columns, each
    column has a part in several. The arguments are those of `lsh`.
    """
    return _made("itq", rotated_code, X, n_bits, random_state, n_threads)
