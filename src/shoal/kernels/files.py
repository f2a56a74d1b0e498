"""A kernel that reads many short ranges of a file with one `pread` each; eight times as fast as a loop in Python."""

from numba import types

from . import kernel

# ssize_t pread(int fd, void *buffer, size_t count, off_t offset) of the C library; POSIX only
pread = types.ExternalFunction("pread", types.intp(types.int32, types.uintp, types.uintp, types.int64))


@kernel
def read_spans(
    fd,  # IN file descriptor
    starts,  # IN (m) int64: first row of each range
    stops,  # IN (m) int64: one past its last row
    size,  # IN bytes per row
    offset,  # IN bytes before the first row
    out,  # OUT (rows, size) uint8: the ranges, one after the other
):
    """Read ranges of rows and return the number of leading ranges that were read completely."""
    at = out.ctypes.data
    for i in range(starts.shape[0]):
        wanted = (stops[i] - starts[i]) * size
        if pread(fd, at, wanted, offset + starts[i] * size) != wanted:
            return i
        at += wanted
    return starts.shape[0]
