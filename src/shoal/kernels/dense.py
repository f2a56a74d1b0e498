"""Kernels for dense rows: C-contiguous float32 or float64 blocks.

Two kinds of number live here. A *score* ``|c|^2 - 2 x.c`` is fast and slightly wrong; a *distance* ``(x - c)^2`` is
slow, in float64 and right. Scores only ever rule centres out, with a margin for their rounding; whatever they leave
open is decided by distances. So a label does not depend on the block, the thread or the method that found it.
"""

import numpy as np

from . import fast_kernel, kernel

TILE = 240  # rows laid side by side, one a vector lane; not a power of two, or columns would share cache sets


@fast_kernel
def squared_distance(
    x,  # IN (d)
    c,  # IN (d)
):
    """(x - c)^2 in float64."""
    total = 0.0
    for t in range(x.shape[0]):
        e = np.float64(x[t]) - np.float64(c[t])
        total += e * e
    return total


@fast_kernel
def squared_norms(
    X,  # IN (n, d), any layout
    out,  # OUT (n) float64
):
    for i in range(X.shape[0]):
        total = 0.0
        for t in range(X.shape[1]):
            total += np.float64(X[i, t]) * np.float64(X[i, t])
        out[i] = total


@kernel
def pair_distances(
    X,  # IN (n, d)
    rows,  # IN (m)
    centers,  # IN (m)
    C,  # IN (k, d)
    out,  # OUT (m) float64
):
    for q in range(rows.shape[0]):
        out[q] = squared_distance(X[rows[q]], C[centers[q]])


@fast_kernel
def _score_pair(
    columns,  # IN (h, TILE): one column of every row in the tile
    z0,  # IN (h): first centre, times -2
    z1,  # IN (h): second centre, times -2
    s0,  # IN its |c|^2
    s1,
    out0,  # OUT (TILE)
    out1,  # OUT (TILE)
):
    """Scores of a tile's rows for two centres. Four columns at a time keep the loop bound by multiplications."""
    h = columns.shape[0]
    rows = columns.shape[1]
    for i in range(rows):
        out0[i] = s0
        out1[i] = s1
    whole = h - h % 4
    for t in range(0, whole, 4):
        a0, a1, a2, a3 = z0[t], z0[t + 1], z0[t + 2], z0[t + 3]
        b0, b1, b2, b3 = z1[t], z1[t + 1], z1[t + 2], z1[t + 3]
        x0, x1, x2, x3 = columns[t], columns[t + 1], columns[t + 2], columns[t + 3]
        for i in range(rows):
            u0, u1, u2, u3 = x0[i], x1[i], x2[i], x3[i]
            out0[i] = (((out0[i] + u0 * a0) + u1 * a1) + u2 * a2) + u3 * a3
            out1[i] = (((out1[i] + u0 * b0) + u1 * b1) + u2 * b2) + u3 * b3
    for t in range(whole, h):
        a0, b0 = z0[t], z1[t]
        x0 = columns[t]
        for i in range(rows):
            out0[i] += x0[i] * a0
            out1[i] += x0[i] * b0


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
            _score_pair(columns, Z[j], Z[last], z2[j], z2[last], scores[0], scores[1])
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


@kernel
def settle_near_ties(
    X,  # IN (n, d)
    C,  # IN (k, d)
    margin,  # IN (n): how far a score may be off
    best,  # IN (n)
    second,  # IN (n)
    labels,  # ADD (n) int32
):
    """Where two centres' scores are closer than their rounding, decide by distance; the first of equals wins."""
    count = 0
    for i in range(X.shape[0]):
        if second[i] - best[i] > 2 * margin[i]:
            continue
        count += 1
        nearest = np.inf
        for j in range(C.shape[0]):
            distance = squared_distance(X[i], C[j])
            if distance < nearest:
                nearest = distance
                labels[i] = j
    return count


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
    masses,  # ADD (touched) float64
    counts,  # ADD (touched) int64: of rows with a positive weight
):
    """Take each moving row out of its old cluster's sum and put it into the new one's."""
    d = X.shape[1]
    for i in range(X.shape[0]):
        if old[i] == new[i]:
            continue
        w = weights[i]
        into = sums[slots[new[i]]]
        for t in range(d):
            into[t] += w * X[i, t]
        masses[slots[new[i]]] += w
        counts[slots[new[i]]] += w > 0
        if old[i] >= 0:
            out_of = sums[slots[old[i]]]
            for t in range(d):
                out_of[t] -= w * X[i, t]
            masses[slots[old[i]]] -= w
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


UP = 1 + 2.0**-22  # a float32 bound is rounded away from the truth by more than float32 can lose
DOWN = 1 - 2.0**-22


@kernel
def order_by_label(
    labels,  # IN (n) int32
    starts,  # OUT (k + 1) int64
    order,  # OUT (n) int32
):
    """Rows of one cluster side by side, so that the lanes of a tile meet the same centres: a counting sort."""
    starts[:] = 0
    for i in range(labels.shape[0]):
        starts[labels[i] + 1] += 1
    for j in range(starts.shape[0] - 1):
        starts[j + 1] += starts[j]
    for i in range(labels.shape[0]):
        order[starts[labels[i]]] = i
        starts[labels[i]] += 1


@kernel
def test_rows(
    order,  # IN (n) int32: the order in which to visit the rows
    X,  # IN (n, d)
    C,  # IN (k, d)
    drift,  # IN (k) float64: how far each centre has moved since the bounds were made
    group_drift,  # IN (g) float64: the largest of them in each group
    gap,  # IN (k) float64: half the distance to the nearest other centre
    labels,  # IN (n) int32
    upper,  # ADD (n) float32
    lower,  # ADD (n, g) float32
    best,  # OUT (n) float64: squared distance to the own centre, where it was computed
    lists,  # OUT (g, n) int32: the rows that must look at each group
    lengths,  # OUT (g) int64
):
    """Which rows can't be sure of their centre, and against which groups. Returns how many and the distances taken."""
    groups = group_drift.shape[0]
    visited = computed = 0
    lengths[:] = 0
    for i in order:
        a = labels[i]
        near = (upper[i] + drift[a]) * UP
        upper[i] = near
        closest = np.inf
        for g in range(groups):
            bound = (lower[i, g] - group_drift[g]) * DOWN
            lower[i, g] = bound
            closest = bound if bound < closest else closest
        if near < closest or near < gap[a]:
            continue
        best[i] = squared_distance(X[i], C[a])
        computed += 1
        near = np.sqrt(best[i]) * UP
        upper[i] = near
        if near < closest or near < gap[a]:
            continue
        visited += 1
        for g in range(groups):
            if lower[i, g] <= near:
                lists[g, lengths[g]] = i
                lengths[g] += 1
    return visited, computed


@fast_kernel
def _count_below(s0, s1, limits):
    count = np.float32(0)
    for i in range(limits.shape[0]):
        low = s0[i] if s0[i] < s1[i] else s1[i]
        count += np.float32(1) if low <= limits[i] else np.float32(0)
    return count


@kernel
def _flag_below(scores, limits, flags):
    for i in range(limits.shape[0]):
        flags[i] = scores[i] <= limits[i]


@fast_kernel
def _fold(s0, s1, limits, floor, out):
    """Remember the lowest score above the limit; what is below it is looked at one by one."""
    for i in range(limits.shape[0]):
        limit, f, v, w = limits[i], floor[i], s0[i], s1[i]
        v = v if v > limit else np.inf
        w = w if w > limit else np.inf
        v = v if v < w else w
        out[i] = v if v < f else f


@fast_kernel
def _squared_difference(x, z, start, stop):
    total = np.float32(0)
    for t in range(start, stop):
        e = x[t] - z[t]
        total += e * e
    return total


@fast_kernel
def screen(
    rows,  # IN (m) int32: which rows
    g,  # IN which group of centres
    first,  # IN the group's centres are ids[first:last]
    last,
    ids,  # IN (k) int32
    group_of,  # IN (k) int32
    heads,  # IN (n, h): leading coordinates of the rows
    Zc,  # IN (k, coarse): the centres' coarse ones times -2, in the order of ids
    z2,  # IN (k): |c|^2, in the order of ids
    Z,  # IN (k, h): all their leading coordinates, in the order of ids
    X,  # IN (n, d)
    C,  # IN (k, d)
    slack,  # IN (n): how far a score may be off
    labels,  # ADD (n) int32
    best,  # ADD (n) float64
    upper,  # OUT (n) float32
    lower,  # ADD (n, g) float32
):
    """Compute distances only to centres of the group whose lower bound is below the row's best. Returns how many."""
    coarse = Zc.shape[1]
    fine = heads.shape[1] > coarse
    computed = 0
    columns = np.zeros((coarse, TILE), heads.dtype)
    limits = np.empty(TILE, heads.dtype)
    floor = np.empty((2, TILE), heads.dtype)
    scores = np.empty((2, TILE), heads.dtype)
    norms = np.empty(TILE, np.float64)
    flags = np.empty((2, TILE), np.uint8)
    words = flags.view(np.uint64)
    for start in range(0, rows.shape[0], TILE):
        tile = rows[start : start + TILE]
        limits[:] = -np.inf
        floor[0] = np.inf
        for i in range(tile.shape[0]):
            r = tile[i]
            norm = 0.0
            for t in range(coarse):
                v = heads[r, t]
                columns[t, i] = v
                norm += np.float64(v) * np.float64(v)
            norms[i] = norm
            limits[i] = best[r] - norm + slack[r]
            lower[r, g] = np.inf
        now = 0
        for j in range(first, last, 2):
            pair = min(2, last - j)
            _score_pair(columns, Zc[j], Zc[j + pair - 1], z2[j], z2[j + pair - 1], scores[0], scores[1])
            _fold(scores[0], scores[1], limits, floor[now], floor[1 - now])
            now = 1 - now
            if _count_below(scores[0], scores[1], limits) == 0:
                continue
            for q in range(pair):
                _flag_below(scores[q], limits, flags[q])
            for q in range(pair):
                candidate = ids[j + q]
                for word in range(words.shape[1]):
                    if words[q, word] == 0:
                        continue
                    for i in range(8 * word, 8 * word + 8):
                        if flags[q, i] == 0 or candidate == labels[tile[i]]:
                            continue
                        r = tile[i]
                        score = scores[q, i]
                        if fine and score <= limits[i]:  # swap the norm that the coarse columns leave out for finer ones
                            rest = heads[r, coarse - 1] - Z[j + q, coarse - 1]
                            score += _squared_difference(heads[r], Z[j + q], coarse, heads.shape[1]) - rest * rest
                        if score > limits[i]:
                            bound = np.sqrt(max(score + norms[i] - slack[r], 0.0)) * DOWN
                            lower[r, g] = min(np.float64(lower[r, g]), bound)
                            continue
                        distance = squared_distance(X[r], C[candidate])
                        computed += 1
                        if distance < best[r] or (distance == best[r] and candidate < labels[r]):
                            old = group_of[labels[r]]
                            lower[r, old] = min(np.float64(lower[r, old]), np.sqrt(best[r]) * DOWN)
                            best[r] = distance
                            labels[r] = candidate
                            limits[i] = distance - norms[i] + slack[r]
                        else:
                            lower[r, g] = min(np.float64(lower[r, g]), np.sqrt(distance) * DOWN)
        for i in range(tile.shape[0]):
            r = tile[i]
            upper[r] = np.sqrt(best[r]) * UP
            bound = np.sqrt(max(floor[now, i] + norms[i] - slack[r], 0.0)) * DOWN
            lower[r, g] = min(np.float64(lower[r, g]), bound)
    return computed


@kernel
def gains(
    X,  # IN (n, d)
    tried,  # IN (t): rows proposed as centres
    scores,  # IN (t, n): -2 y.z of the proposed rows' and all rows' heads
    norms2,  # IN (n): |y|^2
    slack,  # IN how far a score may be off
    weights,  # IN (n) float64
    least,  # IN (n) float64: squared distance to the nearest centre so far
    out,  # OUT (t, n) float64: by how much each proposal would lower it
):
    """Energy saved by each proposed centre; distances only where the lower bound is below the present one."""
    saved = np.zeros(tried.shape[0])
    for q in range(tried.shape[0]):
        c = X[tried[q]]
        own = norms2[tried[q]] - slack
        line = scores[q]
        for i in range(X.shape[0]):
            out[q, i] = 0.0
            if line[i] + norms2[i] + own < least[i]:
                gain = least[i] - squared_distance(X[i], c)
                if gain > 0:
                    out[q, i] = gain
                    saved[q] += weights[i] * gain
    return saved
