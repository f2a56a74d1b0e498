"""Sizes of the batches of an Arrow file, parsed from its footer: pyarrow only reports them after reading the batches.

Footer and batch headers are FlatBuffers tables. A table starts with the offset to a list of slots, one for each field, which
hold the offset of the field's value. All offsets are checked by `struct`, which raises if one leads out of the data.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

import numpy as np

from ..data.types import Array

MAX_BATCH_HEADER = 1 << 26  # bytes of a batch's header that are read; a header takes about 100 bytes per column
BATCH_SIZE = [("rows", "i8"), ("stored", "i8")]
FOOTER_RECORD_BATCHES, MESSAGE_HEADER, BATCH_LENGTH = 3, 2, 0  # indices of fields in Arrow's FlatBuffers schema


def batch_sizes(path: Path) -> Array:
    """Return the number of rows and of stored bytes of each batch."""
    with open(path, "rb") as file:
        file.seek(-10, os.SEEK_END)
        (size,) = struct.unpack("<i", file.read(4))
        file.seek(-10 - size, os.SEEK_END)
        footer = file.read(size)
        if not (list_at := _field(footer, _follow(footer, 0), FOOTER_RECORD_BATCHES)):
            return np.zeros(0, BATCH_SIZE)
        at = _follow(footer, list_at)
        blocks = np.frombuffer(footer, "<i8, <i4, <i4, <i8", struct.unpack_from("<I", footer, at)[0], at + 4)
        sizes = np.zeros(len(blocks), BATCH_SIZE)
        for i, (offset, length, _, stored) in enumerate(blocks.tolist()):
            file.seek(offset)
            sizes[i] = _row_count(file.read(min(max(length, 0), MAX_BATCH_HEADER))), stored
    return sizes


def _row_count(message: bytes) -> int:
    """Return the number of rows that the header of a batch declares."""
    message = message[8 if message.startswith(b"\xff\xff\xff\xff") else 4 :]
    batch = _follow(message, _field(message, _follow(message, 0), MESSAGE_HEADER))
    at = _field(message, batch, BATCH_LENGTH)
    return int(struct.unpack_from("<q", message, at)[0]) if at else 0


def _follow(data: bytes, at: int) -> int:
    """Return the position that the offset at this position leads to."""
    return at + int(struct.unpack_from("<I", data, at)[0])


def _field(data: bytes, table: int, i: int) -> int:
    """Return the position of field i of a table; 0 if the table does not have it."""
    slots = table - struct.unpack_from("<i", data, table)[0]
    n_bytes = struct.unpack_from("<H", data, slots)[0]
    offset = struct.unpack_from("<H", data, slots + 4 + 2 * i)[0] if 4 + 2 * i < n_bytes else 0
    return table + int(offset) if offset else 0
