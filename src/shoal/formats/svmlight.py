"""svmlight files: sparse rows as `label column:value ...`. Labels are ignored.

The number of rows is known only at the end of the file, so rows are parsed once, into a scratch file.
"""

from __future__ import annotations

import re
from itertools import chain, repeat
from operator import contains
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from ..data.types import warn
from ..exceptions import InvalidFileError
from .fingerprint import watch
from .headers import is_number
from .options import Opened, Options, check_shape
from .raw import SparseScratch
from .text_lines import Lines, lines_of, parts_of

MAX_COLUMN = 2**31 - 2  # SciPy's 32-bit indices
MAX_DIGITS = 4000  # of a column number; Python does not convert much longer ones
ZERO_COLUMN = re.compile(r"\s*\S+(\s+qid:\S*)*\s+[-+]?0+:")  # a row whose first column is 0; columns are in ascending order


def open_svmlight(path: Path, options: Options) -> Opened:
    """Parse all rows. As in scikit-learn, columns count from 1 unless one of them is 0."""
    if options.columns is not None or options.non_features:
        raise InvalidFileError(f"{path}: columns=, id_column= and text_column= are not for svmlight files: remove them.")
    scratch = SparseScratch(str(path), np.float64, np.int64, options.scratch)
    low, high = MAX_COLUMN, -1
    check_unchanged = watch(path)
    lines = ((i, line.partition("#")[0]) for i, line in enumerate(lines_of(path), 1))
    for part in parts_of((pair for pair in lines if pair[1].strip()), options.limit_rows):
        block = _parse(path, part)
        scratch.append(block)
        low, high = min(low, int(block.indices.min(initial=low))), max(high, int(block.indices.max(initial=high)))
    if not scratch.data.n and not scratch.lengths:
        raise InvalidFileError(f"{path}: is empty: use a file with rows.")
    if options.zero_based is not None:
        base = int(not options.zero_based)
    else:
        # Rows beyond limit_rows count, too: the columns of a row must not depend on how many rows are read.
        has_zero = low == 0 or (options.limit_rows is not None and _has_zero_column(path))
        base = _guess_base(path, options, has_zero, high)
    check_unchanged()
    rows = scratch.rows(_width(path, options, base, low, high), base)
    check_shape(path, rows)
    return Opened(rows)


def _has_zero_column(path: Path) -> bool:
    """Return whether any row of the whole file has column 0, without parsing the rows."""
    return any(ZERO_COLUMN.match(line.partition("#")[0]) for line in lines_of(path))


def _guess_base(path: Path, options: Options, has_zero: bool, high: int) -> int:
    """Return the index of the first column, 0 or 1; warn if `n_features` allows both."""
    base = int(not has_zero and high >= 0)
    if base == 1 and options.n_features is not None and high < options.n_features:
        reason = f"none of them is 0 and none is {options.n_features}"
        warn(
            f"{path}: its columns are assumed to count from 1, but {reason}: use zero_based=False to confirm, zero_based=True "
            "to change this.",
            UserWarning,
        )
    return base


def _width(path: Path, options: Options, base: int, low: int, high: int) -> int:
    """Return the number of columns: `n_features`, or as many as the rows need."""
    width = max(high + 1 - base, 1)
    if options.n_features is None:
        return width
    if width > options.n_features or low < base:
        raise InvalidFileError(
            f"{path}: has columns from {low} to {high}, which do not fit n_features={options.n_features} if columns count "
            f"from {base}: correct n_features= or zero_based=."
        )
    return options.n_features


def _parse(path: Path, part: Lines) -> Any:
    """Parse some lines to a CSR array."""
    pairs = [[word for word in line.split()[1:] if not word.startswith("qid:")] for _, line in part]
    lengths = np.array([len(words) for words in pairs])
    text = ":".join(chain.from_iterable(pairs))
    flat = text.split(":") if text else []
    try:
        if len(flat) != 2 * lengths.sum() or "_" in text or not all(map(contains, chain.from_iterable(pairs), repeat(":"))):
            raise ValueError("a word is not column:value")
        indices, data = np.array(list(map(int, flat[::2])), np.int64), np.array(list(map(float, flat[1::2])))
        is_ascending = np.diff(indices, prepend=-1) > 0
        is_ascending[np.concatenate([[0], lengths.cumsum()[:-1]])[lengths > 0]] = True
        if not is_ascending.all() or (len(indices) and not 0 <= indices.min() <= indices.max() <= MAX_COLUMN):
            raise ValueError("columns are not in ascending order")
        for _, line in part:
            list(map(float, line.split(None, 1)[0].split(",")))
    except (ValueError, OverflowError) as error:
        raise _locate_error(path, part) from error
    indptr = np.concatenate([[0], lengths.cumsum()])
    return sparse.csr_array((data, indices, indptr), shape=(len(part), int(indices.max(initial=0)) + 1))


def _locate_error(path: Path, part: Lines) -> InvalidFileError:
    """Return the error for the first invalid line."""
    for number, line in part:
        label, *pairs = line.split()
        if not all(map(is_number, label.split(","))):
            return InvalidFileError(
                f"{path}: line {number} begins with {label[:40]!r}, not a number: begin each line with a label."
            )
        before = -1
        for pair in pairs:
            column, _, value = pair.partition(":")
            if column == "qid":
                continue
            if not column.isdecimal() or not is_number(value) or len(column) > MAX_DIGITS or int(column) > MAX_COLUMN:
                return InvalidFileError(
                    f"{path}: line {number} has {pair[:40]!r}: write column:value, with columns up to {MAX_COLUMN:,}."
                )
            if int(column) <= before:
                return InvalidFileError(f"{path}: line {number} has column {column} after {before}: sort the columns of a row.")
            before = int(column)
    return InvalidFileError(f"{path}: lines {part[0][0]} to {part[-1][0]} are not svmlight rows: write them again.")
