"""Kernels for dense rows: C-contiguous float32 or float64 blocks.

Centroids are compared by two kinds of numbers. A *score* ``|c|^2 - 2 x.c`` is fast, and inexact because of rounding. A
*distance* ``(x - c)^2`` is slower and computed in float64. Scores only exclude centroids, with a margin for their rounding;
the remaining ones are compared by distance. A label therefore does not depend on the block, the thread or the method that
computed it.
"""

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from . import DOWN, TINY, UP, fast_kernel, kernel

# Rows that `two_best_narrow` transposes and scores together. A multiple of the vector width, but not a power of two: columns
# would then map to the same cache sets. Only speed depends on it.
TILE = 240


@fast_kernel
def squared_distance(X, i, C, j):
    """Return (x - c)^2 of row i and centroid j in float64. Rows are passed by index: a slice would cost a reference count."""
    total = 0.0
    for t in range(X.shape[1]):
        e = np.float64(X[i, t]) - np.float64(C[j, t])
        total += e * e
    return total


@fast_kernel
def _norm2(X, i, width):
    """Return |x|^2 of the first `width` columns of row i, in float64."""
    total = 0.0
    for t in range(width):
        total += np.float64(X[i, t]) * np.float64(X[i, t])
    return total


@fast_kernel
def squared_norms(
    X,  # IN (n, d), any layout
    out,  # OUT (n) float64
):
    """Compute |x|^2 of every row."""
    for i in range(X.shape[0]):
        out[i] = _norm2(X, i, X.shape[1])


@kernel
def pair_distances(
    X,  # IN (n, d)
    rows,  # IN (m): row of each pair
    centers,  # IN (m): centroid of each pair
    C,  # IN (k, d)
    out,  # OUT (m) float64
):
    """Compute (x - c)^2 of pairs in float64."""
    for q in range(rows.shape[0]):
        out[q] = squared_distance(X, rows[q], C, centers[q])


@fast_kernel
def _score_pair(
    columns,  # IN (h, TILE): the rows of a tile, transposed
    Z,  # IN (k, h): centroids times -2
    j0,  # IN the two centroids to score
    j1,
    z2,  # IN (k): |c|^2
    out,  # OUT (2, TILE)
):
    """Compute the scores of a tile's rows for two centroids, four columns per pass to reduce loads and stores of `out`."""
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
    s0,  # IN (rows): scores of centroid j
    s1,  # IN (rows): scores of centroid j + 1
    j,
    labels,  # IN (rows) int32
    best,  # IN (rows)
    second,  # IN (rows)
    labels_out,  # OUT (rows) int32
    best_out,  # OUT (rows)
    second_out,  # OUT (rows)
):
    """Merge the scores of two more centroids into the lowest two. Stores in place would prevent vectorization."""
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
    Z,  # IN (k, h): centroids times -2
    z2,  # IN (k): |c|^2
    labels,  # OUT (n) int32: centroid of the lowest score; of equal ones, the first
    best,  # OUT (n): its score
    second,  # OUT (n): lowest score of the other centroids
):
    """Find the two lowest scores of each row, for few columns, where storing the result of a GEMM would dominate the time."""
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
    S,  # ADD (k, n): -2 c.x from a GEMM, one row per centroid; |c|^2 is added in place
    z2,  # IN (k): |c|^2
    labels,  # OUT (n) int32: centroid of the lowest score; of equal ones, the first
    best,  # OUT (n): its score
    second,  # OUT (n): lowest score of the other centroids
):
    """Find the two lowest scores of each row from the result of a GEMM."""
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
    rounding,  # IN largest error of a score, relative to |x|^2 + |c|^2
    norms2,  # IN (k): |c|^2
    labels,  # IN (n) int32: centroid of the lowest score
    out,  # OUT (n): a centroid whose score exceeds the lowest by more than this is not the nearest
):
    """Compute the margin within which scores do not decide which centroid is nearest."""
    for i in range(X.shape[0]):
        norm2 = X.dtype.type(0)  # float32 is accurate enough for a margin
        for t in range(X.shape[1]):
            norm2 += X[i, t] * X[i, t]
        out[i] = 2 * rounding * (norm2 + norms2[labels[i]])


@kernel
def touched_slots(
    old,  # IN (n) int32: previous labels; -1 for none
    new,  # IN (n) int32: new labels
    slots,  # OUT (k) int32: row of each touched cluster in compact sums; -1 for other clusters
):
    """Number the clusters that a reassigned row leaves or joins, and return how many there are."""
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
    old,  # IN (n) int32: previous labels; -1 for none
    new,  # IN (n) int32: new labels
    slots,  # IN (k) int32: from `touched_slots`
    sums,  # ADD (touched, d) float64: sums of w x
    weight_sums,  # ADD (touched) float64
    squares,  # ADD (touched) float64: sums of w |x|^2
    counts,  # ADD (touched) int64: number of rows with a positive weight
):
    """Subtract each reassigned row from the sums of its old cluster and add it to those of the new one."""
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
    scale,  # IN a power of two, so that multiplying by it is exact
    sums,  # ADD (d) float64: sums of w e, where e = (x - origin) scale
    squares,  # ADD (d) float64: sums of w e^2
    largest,  # ADD (d) float64: maxima of |e|
):
    """Add up the first and second moment of every column, and find its largest magnitude."""
    n, d = X.shape
    for i in range(n):
        w = weights[i]
        for t in range(d):
            e = (np.float64(X[i, t]) - origin[t]) * scale
            sums[t] += w * e
            squares[t] += w * (e * e)
            a = abs(e)
            largest[t] = a if a > largest[t] else largest[t]


LANES = 8  # centroids that `_score_eight` scores together; centroids are stored in groups of this size (`kmeans.projected`)
MOST = 65535  # largest lower bound that fits in uint16, in units of `1 / per_unit`; larger distances are stored as this


@intrinsic
def _score_eight(typingctx, heads, i, Z, s, z2, limit, out):
    """Compute the scores of row i for the centroids 8 s .. 8 s + 7, one per vector lane, and store them in `out`.

    Return a bit mask of the lanes whose score is at or below `limit`, and the lowest score of the other lanes. Invariant: every
    centroid of the eight is either in the mask or has a score of at least the returned minimum. The LLVM code is generated by
    hand because Numba would keep the lanes in memory, at ten times the cost.
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

        def integer(n):
            return ir.Constant(ir.IntType(64), n)

        def lanes(pointer):
            return b.bitcast(pointer, ir.PointerType(vector))

        def load(pointer):
            value = b.load(lanes(pointer))
            value.align = number.bitwidth // 8
            return value

        def broadcast(value):
            undefined = ir.Constant(vector, ir.Undefined)
            one = b.insert_element(undefined, value, ir.Constant(ir.IntType(32), 0))
            return b.shuffle_vector(one, undefined, ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES))

        h = cgutils.unpack_tuple(b, H.shape)[1]
        width = cgutils.unpack_tuple(b, Zs.shape)[1]
        first = b.mul(args[3], integer(LANES))
        y = b.gep(H.data, [b.mul(args[1], h)])
        z = b.gep(Zs.data, [b.mul(first, width)])
        multiply_add = function("llvm.fmuladd", vector, [vector] * 3)

        def add_products(start, stop, sums):
            """Emit a loop: sums[u] += y[t + u] * z[t + u] for t from start to stop in steps of len(sums)."""
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
                column = b.add(t, integer(u))
                at = b.gep(z, [b.mul(column, integer(LANES))])
                phi.add_incoming(b.call(multiply_add, [broadcast(b.load(b.gep(y, [column]))), load(at), phi]), body)
            t.add_incoming(b.add(t, integer(len(sums))), body)
            b.branch(head)
            b.position_at_end(after)
            return running

        zero = ir.Constant(vector, [0.0] * LANES)
        unrolled = b.and_(width, integer(-4))  # columns that the loop unrolled by four covers
        s0, s1, s2, s3 = add_products(integer(0), unrolled, [load(b.gep(squares.data, [first])), zero, zero, zero])
        (score,) = add_products(unrolled, width, [b.fadd(b.fadd(s0, s1), b.fadd(s2, s3))])
        b.store(score, lanes(result.data)).align = number.bitwidth // 8
        hit = b.fcmp_ordered("<=", score, broadcast(args[5]))
        above = b.select(hit, ir.Constant(vector, [float("inf")] * LANES), score)
        lowest = b.call(function("llvm.vector.reduce.fmin", scalar, [vector]), [above])
        return context.make_tuple(b, signature.return_type, [b.zext(b.bitcast(hit, ir.IntType(LANES)), ir.IntType(64)), lowest])

    return signature, codegen


@fast_kernel
def _finer(heads, i, Z, j, coarse):
    """Return the increase of a coarse squared lower bound when finer columns replace its last column.

    The last coarse column is the norm of all columns that the coarse head leaves out.
    """
    total = np.float32(0)
    for t in range(coarse, heads.shape[1]):
        e = heads[i, t] - Z[j, t]
        total += e * e
    rest = heads[i, coarse - 1] - Z[j, coarse - 1]
    return total - rest * rest


@kernel
def _lower_bounds(
    lower,  # ADD (n, g) uint16: lower bounds, in units
    i,  # IN row
    steps,  # IN (g) uint16: largest movement of a centroid of each group, in units
):
    """Lower the bounds of row i by the movement of the groups, and return the lowest."""
    least = np.uint16(MOST)
    for g in range(steps.shape[0]):
        bound, step = lower[i, g], steps[g]
        bound = np.uint16(bound - step) if bound > step else np.uint16(0)
        lower[i, g] = bound
        least = bound if bound < least else least
    return least


@fast_kernel
def coarse_minima(
    S,  # IN (8 e, m): -2 y.z from a GEMM, one row per centroid
    z2,  # IN (8 e): |z|^2
    heads,  # IN (m, h): leading columns of the rows
    width,  # IN number of coarse columns
    starts,  # IN (g + 1): start of each group, in units of eight centroids
    rounding,  # IN see `settle_rows`
    per_unit,  # IN see `settle_rows`
    least,  # OUT (e, m): lowest score of each eight centroids
    lowest,  # OUT (g, m): lowest score of each group
    bounds,  # OUT (g, m) uint16: lower bound of the distance to the nearest centroid of each group, in units
):
    """Reduce scores in the coarse columns to minima over eight centroids and over groups, and to lower bounds of distances."""
    m = least.shape[1]
    base = np.empty(m, np.float32)  # score + base is a lower bound of the squared distance
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
    """Return the position of the centroid that is nearest in the coarse columns."""
    s = 0
    for e in range(least.shape[0]):
        s = e if least[e, i] < least[s, i] else s
    _score_eight(heads, i, Zc, s, z2, heads.dtype.type(np.inf), out)
    return LANES * s + np.argmin(out)


@fast_kernel
def settle_rows(
    X,  # IN (n, d)
    heads,  # IN (n, h): leading columns of the rows, the coarse ones first
    minima,  # IN least, lowest and bounds from `coarse_minima`; None to score the groups that the bounds do not exclude
    rounding,  # IN largest error of a score, relative to |x|^2
    per_unit,  # IN units of a lower bound per distance of one
    centers,  # IN the centroids, see `kmeans.projected`
    moved,  # IN their movement: drift (k), steps (g) uint16, gap (k)
    labels,  # ADD (n) int32: -1 for none, only if `minima` are given
    upper,  # ADD (n) float32: upper bound of the distance to the row's own centroid
    lower,  # ADD (n, g) uint16: lower bound of the distance to every other centroid of the group, in units
):
    """Assign rows to their nearest centroids with bounds in leading columns.

    Return the number of rows that the bounds did not decide, of distances computed and of eights that the bounds left open.

    Invariant, before and after each row: ``upper[i]`` is at least the distance to centroid ``labels[i]``, and ``lower[i, g]``
    is at most the distance to every other centroid of group g. A group whose bound exceeds the upper bound is skipped. In the
    other groups, every centroid is excluded by its score, or compared by its exact distance; the minimum over both kinds is the
    group's new lower bound. Of equally near centroids, the one with the lowest number is chosen.
    """
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
        if minima is not None:  # Numba compiles a separate kernel for None, without these branches
            if label < 0:
                label = order[_nearest_head(heads, i, Zc, z2, minima[0], out)]
        best = squared_distance(X, i, C, label)
        computed += 1
        near = np.sqrt(best) * UP + TINY
        upper[i] = near
        reach = np.int64(min(near * per_unit, MOST)) + 1  # a group with a lower bound up to this, in units, is searched
        if labels[i] >= 0 and (least > reach or near < gap[label]):
            continue
        visited += 1
        norm = _norm2(heads, i, coarse)
        off = rounding * norm
        limit = best - norm + off
        for g in range(steps.shape[0]):
            old_bound = lower[i, g]
            if old_bound <= reach:
                opened += starts[g + 1] - starts[g]
            elif minima is None:
                continue
            if minima is not None:
                if minima[1][g, i] > limit:
                    lower[i, g] = max(old_bound, minima[2][g, i])
                    continue
            lower[i, g] = MOST
            floor = np.inf  # lowest score of the centroids that are excluded
            runner_up = np.inf  # lowest squared distance of the centroids that were compared and are not nearest
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
                        old = group_of[label]  # the previous label is now another centroid of its group
                        lower[i, old] = min(np.int64(lower[i, old]), np.int64(min(np.sqrt(best) * DOWN * per_unit, MOST)))
                        best, label = distance, candidate
                        near = np.sqrt(best) * UP + TINY
                        reach = np.int64(min(near * per_unit, MOST)) + 1
                        limit = best - norm + off
                    else:
                        runner_up = min(runner_up, distance)
            bound = np.sqrt(min(max(floor + norm - off, 0.0), runner_up)) * DOWN * per_unit
            lower[i, g] = min(np.int64(lower[i, g]), max(np.int64(old_bound), np.int64(min(bound, MOST))))
        upper[i] = near
        labels[i] = label
    return visited, computed, opened


@fast_kernel
def weighted_sums(
    X,  # IN (n, d)
    v,  # IN (d) float64
    out,  # OUT (n) float64
):
    """Compute x.v of every row in float64."""
    for i in range(X.shape[0]):
        total = 0.0
        for t in range(X.shape[1]):
            total += np.float64(X[i, t]) * v[t]
        out[i] = total


@fast_kernel
def saved_energy(
    products,  # IN (t, n): dot products of the candidates and all rows in the leading coordinates
    tried,  # IN (t): candidates, rows proposed as centroids
    norms2,  # IN (n) float64: |x|^2
    weights,  # IN (n) float64
    least,  # IN (n) float64: squared distance to the nearest centroid so far
    saved,  # OUT (t) float64
):
    """Estimate by how much each candidate lowers the energy, as if the remaining coordinates of rows were orthogonal."""
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
    c,  # IN row that is the new centroid
    products,  # IN (n): dot products with it in the leading coordinates
    norms2,  # IN (n) float64: |x|^2
    rest,  # IN (n) float64: norm of the remaining coordinates
    slack,  # IN largest error of the lower bound because of rounding
    least,  # ADD (n) float64: squared distance to the nearest centroid so far
):
    """Update `least` after adding a centroid; compute distances only where a lower bound is below the current value."""
    for i in range(X.shape[0]):
        if norms2[i] + norms2[c] - 2 * (products[i] + rest[i] * rest[c]) - slack < least[i]:
            least[i] = min(least[i], squared_distance(X, i, X, c))
