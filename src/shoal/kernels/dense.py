"""Kernels for dense rows: C-contiguous float32 or float64 blocks.

Two kinds of number live here. A *score* ``|c|^2 - 2 x.c`` is fast and slightly wrong; a *distance* ``(x - c)^2`` is
slow, in float64 and right. Scores only ever rule centres out, with a margin for their rounding; whatever they leave
open is decided by distances. So a label does not depend on the block, the thread or the method that found it.
"""

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from . import DOWN, TINY, UP, fast_kernel, kernel

TILE = 240  # rows laid side by side, one a vector lane; not a power of two, or columns would share cache sets


@fast_kernel
def squared_distance(X, i, C, j):
    """(x - c)^2 in float64 of row i and centre j. (Rows are named, not sliced: a slice costs a reference count.)"""
    total = 0.0
    for t in range(X.shape[1]):
        e = np.float64(X[i, t]) - np.float64(C[j, t])
        total += e * e
    return total


@fast_kernel
def _norm2(X, i, width):
    """|x|^2 of row i, of its first columns."""
    total = 0.0
    for t in range(width):
        total += np.float64(X[i, t]) * np.float64(X[i, t])
    return total


@fast_kernel
def squared_norms(
    X,  # IN (n, d), any layout
    out,  # OUT (n) float64
):
    for i in range(X.shape[0]):
        out[i] = _norm2(X, i, X.shape[1])


@kernel
def pair_distances(
    X,  # IN (n, d)
    rows,  # IN (m)
    centers,  # IN (m)
    C,  # IN (k, d)
    out,  # OUT (m) float64
):
    for q in range(rows.shape[0]):
        out[q] = squared_distance(X, rows[q], C, centers[q])


@fast_kernel
def _score_pair(
    columns,  # IN (h, TILE): one column of every row in the tile
    Z,  # IN (k, h): centres times -2
    j0,  # IN the two centres to score
    j1,
    z2,  # IN (k): |c|^2
    out,  # OUT (2, TILE)
):
    """Scores of a tile's rows for two centres. Four columns at a time keep the loop bound by multiplications."""
    h, rows = columns.shape
    s0, s1 = z2[j0], z2[j1]
    for i in range(rows):
        out[0, i] = s0
        out[1, i] = s1
    whole = h - h % 4
    for t in range(0, whole, 4):
        a0, a1, a2, a3 = Z[j0, t], Z[j0, t + 1], Z[j0, t + 2], Z[j0, t + 3]
        b0, b1, b2, b3 = Z[j1, t], Z[j1, t + 1], Z[j1, t + 2], Z[j1, t + 3]
        for i in range(rows):
            u0, u1, u2, u3 = columns[t, i], columns[t + 1, i], columns[t + 2, i], columns[t + 3, i]
            out[0, i] = (((out[0, i] + u0 * a0) + u1 * a1) + u2 * a2) + u3 * a3
            out[1, i] = (((out[1, i] + u0 * b0) + u1 * b1) + u2 * b2) + u3 * b3
    for t in range(whole, h):
        a0, b0 = Z[j0, t], Z[j1, t]
        for i in range(rows):
            out[0, i] += columns[t, i] * a0
            out[1, i] += columns[t, i] * b0


@fast_kernel
def _merge_two_best(
    s0,  # IN (rows): scores of centre j
    s1,  # IN (rows): scores of centre j + 1
    j,
    labels,  # IN (rows) int32
    best,  # IN (rows)
    second,  # IN (rows)
    labels_out,  # OUT (rows) int32
    best_out,  # OUT (rows)
    second_out,  # OUT (rows)
):
    """Two more centres. Results go to other arrays: written in place, the stores become branches and nothing vectorises."""
    for i in range(s0.shape[0]):
        v, w, b, s = s0[i], s1[i], best[i], second[i]
        low = v if v <= w else w
        high = w if v <= w else v
        which = j if v <= w else j + 1
        loser = b if low < b else low
        loser = loser if loser < high else high
        second_out[i] = loser if loser < s else s
        labels_out[i] = which if low < b else labels[i]
        best_out[i] = low if low < b else b


@fast_kernel
def two_best_narrow(
    X,  # IN (n, h)
    Z,  # IN (k, h): centres times -2
    z2,  # IN (k): |c|^2
    labels,  # OUT (n) int32: centre of lowest score, the first of equals
    best,  # OUT (n): its score
    second,  # OUT (n): lowest score among the others
):
    """Scores and both minima in one go, for few columns, where a GEMM would wait for memory."""
    n, h = X.shape
    k = Z.shape[0]
    columns = np.zeros((h, TILE), X.dtype)
    scores = np.empty((2, TILE), X.dtype)
    lab = np.empty((2, TILE), np.int32)
    low = np.empty((2, 2, TILE), X.dtype)
    for start in range(0, n, TILE):
        rows = min(TILE, n - start)
        for i in range(rows):
            for t in range(h):
                columns[t, i] = X[start + i, t]
        lab[0] = 0
        low[0] = np.inf
        now = 0
        for j in range(0, k, 2):
            last = min(j + 1, k - 1)
            _score_pair(columns, Z, j, last, z2, scores)
            if last == j:
                scores[1] = np.inf
            new = 1 - now
            _merge_two_best(scores[0], scores[1], j, lab[now], low[now, 0], low[now, 1], lab[new], low[new, 0], low[new, 1])
            now = new
        labels[start : start + rows] = lab[now, :rows]
        best[start : start + rows] = low[now, 0, :rows]
        second[start : start + rows] = low[now, 1, :rows]


@fast_kernel
def two_best_wide(
    S,  # ADD (k, n): -2 c.x from a GEMM, centres down; |c|^2 is added
    z2,  # IN (k): |c|^2
    labels,  # OUT (n) int32
    best,  # OUT (n)
    second,  # OUT (n)
):
    k, n = S.shape
    lab = np.zeros((2, n), np.int32)
    low = np.full((2, 2, n), np.inf, S.dtype)
    none = np.full(n, np.inf, S.dtype)
    now = 0
    for j in range(0, k, 2):
        new = 1 - now
        row = S[j]
        row += z2[j]
        other = none
        if j + 1 < k:
            other = S[j + 1]
            other += z2[j + 1]
        _merge_two_best(row, other, j, lab[now], low[now, 0], low[now, 1], lab[new], low[new, 0], low[new, 1])
        now = new
    labels[:] = lab[now]
    best[:] = low[now, 0]
    second[:] = low[now, 1]


@fast_kernel
def margins(
    X,  # IN (n, d)
    rounding,  # IN how far a score may be off, as a fraction of |x|^2 + |c|^2
    norms2,  # IN (k) |c|^2
    labels,  # IN (n) int32: of the best scores
    out,  # OUT (n): scores farther than this from the best can't be better
):
    for i in range(X.shape[0]):
        norm2 = X.dtype.type(0)  # for a margin, float32 will do
        for t in range(X.shape[1]):
            norm2 += X[i, t] * X[i, t]
        out[i] = 2 * rounding * (norm2 + norms2[labels[i]])


@kernel
def touched_slots(
    old,  # IN (n) int32, -1 for none
    new,  # IN (n) int32
    slots,  # OUT (k) int32: position among the touched clusters, -1 for untouched
):
    """Give every cluster that a moving row leaves or joins a place in the compact sums."""
    slots[:] = -1
    for i in range(new.shape[0]):
        if old[i] != new[i]:
            slots[new[i]] = 0
            if old[i] >= 0:
                slots[old[i]] = 0
    count = 0
    for j in range(slots.shape[0]):
        if slots[j] == 0:
            slots[j] = count
            count += 1
    return count


@kernel
def add_moves(
    X,  # IN (n, d)
    weights,  # IN (n) float64
    old,  # IN (n) int32, -1 for none
    new,  # IN (n) int32
    slots,  # IN (k) int32
    sums,  # ADD (touched, d) float64
    weight_sums,  # ADD (touched) float64
    squares,  # ADD (touched) float64: of w |x|^2
    counts,  # ADD (touched) int64: of rows with a positive weight
):
    """Take each moving row out of its old cluster's sums and put it into the new one's."""
    d = X.shape[1]
    for i in range(X.shape[0]):
        if old[i] == new[i]:
            continue
        w = weights[i]
        into = sums[slots[new[i]]]
        for t in range(d):
            into[t] += w * X[i, t]
        square = w * _norm2(X, i, d)
        weight_sums[slots[new[i]]] += w
        squares[slots[new[i]]] += square
        counts[slots[new[i]]] += w > 0
        if old[i] >= 0:
            out_of = sums[slots[old[i]]]
            for t in range(d):
                out_of[t] -= w * X[i, t]
            weight_sums[slots[old[i]]] -= w
            squares[slots[old[i]]] -= square
            counts[slots[old[i]]] -= w > 0


@kernel
def column_moments(
    X,  # IN (n, d)
    weights,  # IN (n) float64
    origin,  # IN (d) float64
    scale,  # IN a power of two
    sums,  # ADD (d) float64: of w e, where e = (x - origin) scale
    squares,  # ADD (d) float64: of w e^2
    largest,  # ADD (d) float64: of |e|
):
    """Where the rows are and how wide they spread, column by column."""
    n, d = X.shape
    for i in range(n):
        w = weights[i]
        for t in range(d):
            e = (np.float64(X[i, t]) - origin[t]) * scale
            sums[t] += w * e
            squares[t] += w * (e * e)
            a = abs(e)
            largest[t] = a if a > largest[t] else largest[t]


LANES = 8  # centres scored together
MOST = 65535  # the largest stored lower bound, in units


@intrinsic
def _score_eight(typingctx, heads, i, Z, s, z2, limit, out):
    """Scores of row i for the centres 8 s .. 8 s + 7, one a vector lane, into `out`.

    Returns which lanes are at or below the limit, as bits, and the lowest score above it. Written for LLVM by hand:
    Numba would keep the lanes in memory, at ten times the cost.
    """
    number = heads.dtype
    signature = types.Tuple((types.int64, number))(heads, types.int64, Z, types.int64, z2, number, out)

    def codegen(context, b, signature, args):
        H, Zs, squares, result = (context.make_array(signature.args[n])(context, b, args[n]) for n in (0, 2, 4, 6))
        scalar = context.get_value_type(number)
        vector = ir.VectorType(scalar, LANES)
        suffix = f".v{LANES}f{number.bitwidth}"

        def function(name, returns, takes):
            return cgutils.get_or_insert_function(b.module, ir.FunctionType(returns, takes), name + suffix)

        def whole(n):
            return ir.Constant(ir.IntType(64), n)

        def lanes(pointer):
            return b.bitcast(pointer, ir.PointerType(vector))

        def load(pointer):
            value = b.load(lanes(pointer))
            value.align = number.bitwidth // 8
            return value

        def spread(value):
            nothing = ir.Constant(vector, ir.Undefined)
            one = b.insert_element(nothing, value, ir.Constant(ir.IntType(32), 0))
            return b.shuffle_vector(one, nothing, ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES))

        h = cgutils.unpack_tuple(b, H.shape)[1]
        width = cgutils.unpack_tuple(b, Zs.shape)[1]
        first = b.mul(args[3], whole(LANES))
        y = b.gep(H.data, [b.mul(args[1], h)])
        z = b.gep(Zs.data, [b.mul(first, width)])
        multiply_add = function("llvm.fmuladd", vector, [vector] * 3)

        def add_products(start, stop, sums):
            """sums[u] += y[t + u] * z[t + u] for t from start to stop: as many columns at once as there are sums."""
            before = b.basic_block
            head, body, after = (b.append_basic_block(name) for name in ("head", "body", "after"))
            b.branch(head)
            b.position_at_end(head)
            t, running = b.phi(ir.IntType(64)), [b.phi(vector) for _ in sums]
            t.add_incoming(start, before)
            for phi, value in zip(running, sums, strict=True):
                phi.add_incoming(value, before)
            b.cbranch(b.icmp_signed("<", t, stop), body, after)
            b.position_at_end(body)
            for u, phi in enumerate(running):
                column = b.add(t, whole(u))
                at = b.gep(z, [b.mul(column, whole(LANES))])
                phi.add_incoming(b.call(multiply_add, [spread(b.load(b.gep(y, [column]))), load(at), phi]), body)
            t.add_incoming(b.add(t, whole(len(sums))), body)
            b.branch(head)
            b.position_at_end(after)
            return running

        zero = ir.Constant(vector, [0.0] * LANES)
        most = b.and_(width, whole(-4))
        s0, s1, s2, s3 = add_products(whole(0), most, [load(b.gep(squares.data, [first])), zero, zero, zero])
        (score,) = add_products(most, width, [b.fadd(b.fadd(s0, s1), b.fadd(s2, s3))])
        b.store(score, lanes(result.data)).align = number.bitwidth // 8
        hit = b.fcmp_ordered("<=", score, spread(args[5]))
        above = b.select(hit, ir.Constant(vector, [float("inf")] * LANES), score)
        lowest = b.call(function("llvm.vector.reduce.fmin", scalar, [vector]), [above])
        return context.make_tuple(b, signature.return_type, [b.zext(b.bitcast(hit, ir.IntType(LANES)), ir.IntType(64)), lowest])

    return signature, codegen


@fast_kernel
def _finer(heads, i, Z, j, coarse):
    """What a coarse squared bound gains when its last column, the norm left out, gives way to the finer columns."""
    total = np.float32(0)
    for t in range(coarse, heads.shape[1]):
        e = heads[i, t] - Z[j, t]
        total += e * e
    rest = heads[i, coarse - 1] - Z[j, coarse - 1]
    return total - rest * rest


@kernel
def _lower_bounds(
    lower,  # ADD (n, g) uint16: bounds of row i, in units
    i,
    steps,  # IN (g) uint16: what to take off
):
    """The groups have moved: every bound goes down. Returns the least."""
    least = np.uint16(MOST)
    for g in range(steps.shape[0]):
        bound, step = lower[i, g], steps[g]
        bound = np.uint16(bound - step) if bound > step else np.uint16(0)
        lower[i, g] = bound
        least = bound if bound < least else least
    return least


@fast_kernel
def coarse_minima(
    S,  # IN (8 e, m): -2 y.z from a GEMM, centres down
    z2,  # IN (8 e): |z|^2
    heads,  # IN (m, h)
    width,  # IN columns of a coarse head
    starts,  # IN (g + 1): where each group starts, in eights
    rounding,  # IN see `settle_rows`
    per_unit,  # IN
    least,  # OUT (e, m): the lowest score of eight centres
    lowest,  # OUT (g, m): the lowest score of a group
    bounds,  # OUT (g, m) uint16: no more than the distance to its nearest centre, in units
):
    m = least.shape[1]
    base = np.empty(m, np.float32)  # what makes a score a lower bound of the squared distance
    for i in range(m):
        norm2 = _norm2(heads, i, width)
        base[i] = norm2 * (1 - 1.125 * rounding)
    for s in range(least.shape[0]):
        j = LANES * s
        a0, a1, a2, a3, a4, a5, a6, a7 = z2[j], z2[j + 1], z2[j + 2], z2[j + 3], z2[j + 4], z2[j + 5], z2[j + 6], z2[j + 7]
        for i in range(m):
            v, w = min(S[j, i] + a0, S[j + 1, i] + a1), min(S[j + 2, i] + a2, S[j + 3, i] + a3)
            x, y = min(S[j + 4, i] + a4, S[j + 5, i] + a5), min(S[j + 6, i] + a6, S[j + 7, i] + a7)
            least[s, i] = min(min(v, w), min(x, y))
    low = np.empty((2, m), least.dtype)
    unit = np.float32(per_unit * (1 - 2.0**-21))
    for g in range(lowest.shape[0]):
        now = 0
        low[0] = least[starts[g]]
        for s in range(starts[g] + 1, starts[g + 1]):
            for i in range(m):
                low[1 - now, i] = min(low[now, i], least[s, i])
            now = 1 - now
        for i in range(m):
            score = low[now, i]
            lowest[g, i] = score
            square = np.float32(score) + base[i]
            bound = np.sqrt(square if square > 0 else np.float32(0)) * unit
            bounds[g, i] = np.uint16(np.int32(bound if bound < np.float32(MOST) else np.float32(MOST)))


@fast_kernel
def _nearest_head(heads, i, Zc, z2, least, out):
    """The centre whose coarse head is nearest, by its place."""
    s = 0
    for e in range(least.shape[0]):
        s = e if least[e, i] < least[s, i] else s
    _score_eight(heads, i, Zc, s, z2, heads.dtype.type(np.inf), out)
    return LANES * s + np.argmin(out)


@fast_kernel
def settle_rows(
    X,  # IN (n, d)
    heads,  # IN (n, h): leading columns of the rows, the first c of them coarse
    minima,  # IN what `coarse_minima` found: least, lowest, bounds; None, to score whatever bounds leave open
    rounding,  # IN how far a score may be off, as a fraction of |x|^2
    per_unit,  # IN units in a distance of one
    centers,  # IN the centres, see `kmeans.projected.Centres`
    moved,  # IN how they have moved: drift (k), steps (g) uint16, gap (k)
    labels,  # ADD (n) int32, -1 for none (where all scores are given)
    upper,  # ADD (n) float32: no less than the distance to the own centre
    lower,  # ADD (n, g) uint16: no more than the distance to any other centre of the group, in units
):
    """New labels. Returns the rows that bounds did not settle, the distances computed and the eights they left open."""
    order, group_of, starts, Zc, z2, Z, C = centers
    drift, steps, gap = moved
    coarse = Zc.shape[1]
    fine = heads.shape[1] > coarse
    out = np.empty(LANES, heads.dtype)
    visited = computed = opened = 0
    for i in range(X.shape[0]):
        label = labels[i]
        near = (upper[i] + drift[label]) * UP + TINY
        upper[i] = near
        least = _lower_bounds(lower, i, steps)
        if least > near * per_unit or near < gap[label]:
            continue
        if minima is not None:  # (Numba compiles a kernel of its own for None, without these branches)
            if label < 0:
                label = order[_nearest_head(heads, i, Zc, z2, minima[0], out)]
        best = squared_distance(X, i, C, label)
        computed += 1
        near = np.sqrt(best) * UP + TINY
        upper[i] = near
        reach = np.int64(min(near * per_unit, MOST)) + 1  # bounds up to here leave a group open
        if labels[i] >= 0 and (least > reach or near < gap[label]):
            continue
        visited += 1
        norm = _norm2(heads, i, coarse)
        off = rounding * norm
        limit = best - norm + off
        for g in range(steps.shape[0]):
            was = lower[i, g]
            if was <= reach:
                opened += starts[g + 1] - starts[g]
            elif minima is None:
                continue
            if minima is not None:
                if minima[1][g, i] > limit:
                    lower[i, g] = max(was, minima[2][g, i])
                    continue
            lower[i, g] = MOST
            floor = np.inf  # lowest score of what is ruled out
            loser = np.inf  # lowest distance of what is not, but does not win
            for s in range(starts[g], starts[g + 1]):
                if minima is not None:
                    if minima[0][s, i] > limit:
                        floor = min(floor, np.float64(minima[0][s, i]))
                        continue
                hits, above = _score_eight(heads, i, Zc, s, z2, heads.dtype.type(limit), out)
                floor = min(floor, np.float64(above))
                lane = -1
                while hits:
                    lane += 1
                    hit, hits = hits & 1, hits >> 1
                    candidate = order[LANES * s + lane]
                    if hit == 0 or candidate == label:
                        continue
                    score = np.float64(out[lane])
                    if fine:
                        score += _finer(heads, i, Z, LANES * s + lane, coarse)
                    if score > limit:
                        floor = min(floor, score)
                        continue
                    distance = squared_distance(X, i, C, candidate)
                    computed += 1
                    if distance < best or (distance == best and candidate < label):
                        old = group_of[label]
                        lower[i, old] = min(np.int64(lower[i, old]), np.int64(min(np.sqrt(best) * DOWN * per_unit, MOST)))
                        best, label = distance, candidate
                        near = np.sqrt(best) * UP + TINY
                        reach = np.int64(min(near * per_unit, MOST)) + 1
                        limit = best - norm + off
                    else:
                        loser = min(loser, distance)
            bound = np.sqrt(min(max(floor + norm - off, 0.0), loser)) * DOWN * per_unit
            lower[i, g] = min(np.int64(lower[i, g]), max(np.int64(was), np.int64(min(bound, MOST))))
        upper[i] = near
        labels[i] = label
    return visited, computed, opened


@fast_kernel
def weighted_sums(
    X,  # IN (n, d)
    v,  # IN (d) float64
    out,  # OUT (n) float64
):
    for i in range(X.shape[0]):
        total = 0.0
        for t in range(X.shape[1]):
            total += np.float64(X[i, t]) * v[t]
        out[i] = total


@fast_kernel
def saved_energy(
    products,  # IN (t, n): y.z of proposed centres' and all rows' leading coordinates
    tried,  # IN (t): rows proposed as centres
    norms2,  # IN (n) float64: |x|^2
    weights,  # IN (n) float64
    least,  # IN (n) float64: squared distance to the nearest centre so far
    saved,  # OUT (t) float64
):
    """Energy that each proposed centre would save, as if what the leading coordinates leave out were orthogonal."""
    for q in range(tried.shape[0]):
        own = norms2[tried[q]]
        total = 0.0
        for i in range(least.shape[0]):
            gain = least[i] - (own + norms2[i] - 2 * np.float64(products[q, i]))
            total += weights[i] * gain if gain > 0 else 0.0
        saved[q] = total


@kernel
def lower_least(
    X,  # IN (n, d)
    c,  # IN which row is the new centre
    products,  # IN (n): y.z with it
    norms2,  # IN (n) float64: |x|^2
    rest,  # IN (n) float64: norm of what the leading coordinates leave out
    slack,  # IN how far a product may be off
    least,  # ADD (n) float64
):
    """Distances to the new centre, computed only where the lower bound is below the present least."""
    for i in range(X.shape[0]):
        if norms2[i] + norms2[c] - 2 * (products[i] + rest[i] * rest[c]) - slack < least[i]:
            least[i] = min(least[i], squared_distance(X, i, X, c))
