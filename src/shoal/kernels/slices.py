"""A kernel for packed rows and many centres in slices: the same bit of 256 centres side by side, in one vector.

Distances from 256 centres are then eight or nine vectors, one for each binary digit, and are added up by the logic of an
adder, all 256 at once. What three bits of a row add is looked up: two digits for each of the eight values that they have.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from . import kernel

SLICE_CENTERS = 256  # in a slice
TRIPLES = 22  # in a word of 64 bits; the last has one bit
TILE = 256  # rows for which the tables of a slice stay in the cache
LOW = (1 << 32) - 1


@intrinsic
def _nearest_of_slice(typingctx, X, i, tables, s, limit):
    """The first of the centres of slice s that are nearest to row i, and above it, 32 bits up, how far that is.

    If none is nearer than the limit: a number that is above it as well. Written for LLVM by hand, because Numba has no
    vectors; `tables` is a tuple, so that the number of words is known here.
    """
    signature = types.int64(X, types.int64, tables, types.int64, types.int64)
    digits = (64 * tables.count).bit_length()

    def codegen(context, b, signature, args):
        word, place, wide = ir.IntType(64), ir.IntType(32), ir.IntType(SLICE_CENTERS)
        vector = ir.VectorType(word, SLICE_CENTERS // 64)
        zeros, ones = (ir.Constant(vector, [n] * vector.count) for n in (0, -1))

        def whole(n):
            return ir.Constant(word, n)

        def load(pointer):
            value = b.load(b.bitcast(pointer, ir.PointerType(vector)))
            value.align = 8
            return value

        def spread(value):
            one = b.insert_element(zeros, value, ir.Constant(place, 0))
            return b.shuffle_vector(one, zeros, ir.Constant(ir.VectorType(place, vector.count), [0] * vector.count))

        def is_empty(v):
            return b.icmp_unsigned("==", b.bitcast(v, wide), ir.Constant(wide, 0))

        def add(x, y, z=None):
            """Sum and carry of two bits or three."""
            differ, both = b.xor(x, y), b.and_(x, y)
            return (differ, both) if z is None else (b.xor(differ, z), b.or_(both, b.and_(z, differ)))

        def add_numbers(m, n, carry=None):
            """Numbers are lists of digits, the lowest first; m has no fewer than n."""
            out = []
            for t, digit in enumerate(m):
                if t >= len(n) and carry is None:
                    return out + m[t:]
                total, carry = add(digit, n[t], carry) if t < len(n) else add(digit, carry)
                out.append(total)
            return [*out, carry]

        def count(at, carry=None):
            """What these triples add up to, half of them and the other half."""
            if len(at) == 1:
                return [load(at[0]), load(b.gep(at[0], [whole(4)]))]
            half = len(at) // 2
            return add_numbers(count(at[half:]), count(at[:half]), carry)

        def distances(x, table):
            """In how many bits of one word row and centres differ."""
            values = [b.and_(b.lshr(x, whole(3 * p)), whole(7)) for p in range(TRIPLES)]
            at = [b.gep(table, [b.add(whole(64 * p), b.mul(v, whole(8)))]) for p, v in enumerate(values)]
            return count(at[:-1], load(at[-1]))

        rows = context.make_array(signature.args[0])(context, b, args[0])
        x = b.gep(rows.data, [b.mul(args[1], whole(tables.count))])
        far = []
        for t, value in enumerate(cgutils.unpack_tuple(b, args[2])):
            table = context.make_array(tables.dtype)(context, b, value).data
            mine = distances(b.load(b.gep(x, [whole(t)])), b.gep(table, [b.mul(args[3], whole(64 * TRIPLES))]))
            far = add_numbers(far, mine)[:digits] if far else mine
        less = zeros
        for t, digit in enumerate(far):
            other = spread(b.sub(whole(0), b.and_(b.lshr(args[4], whole(t)), whole(1))))
            less = b.or_(b.and_(other, b.not_(digit)), b.and_(b.not_(b.xor(other, digit)), less))
        found = cgutils.alloca_once_value(b, whole(1 << 62))
        with b.if_then(b.not_(is_empty(less))):
            nearest, least = ones, whole(0)
            for digit in reversed(far):
                zero_here = b.and_(nearest, b.not_(digit))
                none = is_empty(zero_here)
                nearest = b.select(none, nearest, zero_here)
                least = b.or_(b.shl(least, whole(1)), b.zext(none, word))
            first = cgutils.get_or_insert_function(
                b.module, ir.FunctionType(wide, [wide, ir.IntType(1)]), f"llvm.cttz.i{SLICE_CENTERS}"
            )
            which = b.trunc(b.call(first, [b.bitcast(nearest, wide), ir.Constant(ir.IntType(1), 1)]), word)
            b.store(b.or_(b.shl(least, whole(32)), which), found)
        return b.load(found)

    return signature, codegen


@kernel
def nearest(
    X,  # IN (n, words)
    tables,  # IN for each word (slices, TRIPLES, 8, 2, 4): sum and carry of three bits that differ, for 256 centres
    labels,  # OUT (n) int32: the centre that differs in the fewest bits, the first of equals
    far,  # OUT (n) int32: in how many
):
    n = X.shape[0]
    for start in range(0, n, TILE):
        stop = min(start + TILE, n)
        far[start:stop] = 64 * X.shape[1] + 1
        for s in range(tables[0].shape[0]):
            for i in range(start, stop):
                found = _nearest_of_slice(X, i, tables, s, far[i])
                if found >> 32 < far[i]:
                    far[i] = found >> 32
                    labels[i] = SLICE_CENTERS * s + (found & LOW)
