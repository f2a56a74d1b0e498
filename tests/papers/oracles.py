"""The algorithms of the papers, line by line from the papers, one row and one centroid at a time."""

import math

import numpy as np


def norm(v):
    return math.sqrt(sum(float(t) ** 2 for t in v))


def argmin(values):
    values = list(values)
    return values.index(min(values))


# Bottou and Bengio (1995)


def s(x_i, w):
    return argmin(norm(x_i - w_k) for w_k in w)


def E(x, w):
    """(1)"""
    return sum(0.5 * min(norm(x_i - w_k) ** 2 for w_k in w) for x_i in x)


def batch_gradient(x, w, epsilon):
    """(3)"""
    delta = np.zeros_like(w)
    for x_i in x:
        k = s(x_i, w)
        delta[k] += epsilon * (x_i - w[k])
    return w + delta


def online_gradient(x, w, epsilons):
    """(4)"""
    w = w.copy()
    for x_i, epsilon in zip(x, epsilons, strict=True):
        k = s(x_i, w)
        w[k] += epsilon * (x_i - w[k])
    return w


def batch_kmeans(x, w):
    """(5)"""
    names = [s(x_i, w) for x_i in x]
    return np.array([np.mean(x[np.equal(names, k)], axis=0) if k in names else w[k] for k in range(len(w))])


def online_kmeans(x, w, n):
    """(7)"""
    w, n = w.copy(), n.copy()
    for x_i in x:
        k = s(x_i, w)
        n[k] += 1
        w[k] += 1 / n[k] * (x_i - w[k])
    return w, n


def em(x, w):
    """EM for Gaussians with unit variance and equal weights."""
    d, k = x.shape[1], len(w)
    density = np.array([[math.exp(-(norm(x_i - w_k) ** 2) / 2) / (2 * math.pi) ** (d / 2) / k for w_k in w] for x_i in x])
    cost = -sum(math.log(row.sum()) for row in density)
    share = density / density.sum(axis=1, keepdims=True)
    return np.array([sum(share[i, j] * x[i] for i in range(len(x))) / share[:, j].sum() for j in range(k)]), cost


# Newling and Fleuret (2016)


class NMBatch:
    """Algorithm 5, with the line numbers of the paper; `step` is one turn of the loop."""

    def __init__(self, x, k, rho, b, test=True):
        self.x, self.k, self.rho, self.test, self.N = x, k, rho, test, len(x)
        self.M_before, self.M = set(), set(range(min(b, self.N)))  # 2, 3
        self.c = [x[j].copy() for j in range(k)]  # Algorithm 2
        self.S = [x[j].copy() for j in range(k)]
        self.v = [1] * k
        self.sse = [0.0] * k  # 5 to 7
        self.l, self.a, self.d, self.p = {}, {}, {}, [0.0] * k
        self.distances = 0

    def far(self, i, j):
        self.distances += 1
        return norm(self.x[i] - self.c[j])

    def assignment_with_bounds(self, i):
        """Algorithm 1."""
        first = self.a[i]
        self.d[i] = self.far(i, first)
        for j in range(self.k):
            if j != first and (not self.test or self.l[i, j] < self.d[i]):
                self.l[i, j] = self.far(i, j)
                if self.l[i, j] < self.d[i]:
                    self.a[i] = j
                    self.d[i] = self.l[i, j]

    def accumulate(self, i):
        """Algorithm 3."""
        self.S[self.a[i]] = self.S[self.a[i]] + self.x[i]
        self.v[self.a[i]] += 1

    def step(self):
        """Return whether the batch is all rows and no assignment changed."""
        before = dict(self.a)
        for i in self.M_before:
            for j in range(self.k):
                self.l[i, j] -= self.p[j]  # 10
        for i in sorted(self.M_before):
            old = self.a[i]  # 13
            self.sse[old] -= self.d[i] ** 2  # 14
            self.S[old] = self.S[old] - self.x[i]  # 15
            self.v[old] -= 1  # 16
            self.assignment_with_bounds(i)  # 17
            self.accumulate(i)  # 18
            self.sse[self.a[i]] += self.d[i] ** 2  # 19
        for i in sorted(self.M - self.M_before):
            for j in range(self.k):
                self.l[i, j] = self.far(i, j)  # 22
            self.a[i] = argmin(self.l[i, j] for j in range(self.k))  # 25
            self.d[i] = self.l[i, self.a[i]]  # 26
            self.accumulate(i)  # 27
            self.sse[self.a[i]] += self.d[i] ** 2  # 28
        ratios = []
        for j in range(self.k):
            spread = math.sqrt(max(self.sse[j], 0) / (self.v[j] * (self.v[j] - 1))) if self.v[j] > 1 else 0.0  # 31
            c_old = self.c[j]  # 32
            self.c[j] = self.S[j] / self.v[j]  # 33
            self.p[j] = norm(self.c[j] - c_old)  # 34
            ratios.append(spread / self.p[j] if self.p[j] > 0 else math.inf)
        done = len(self.M) == self.N and before == self.a
        self.M_before, size = self.M, len(self.M)
        if min(ratios) > self.rho:  # 36
            self.M = set(range(min(2 * size, self.N)))  # 37
        return done


def mbatch(x, k, batches):
    """Algorithm 4."""
    c, S, v = [x[j].copy() for j in range(k)], [x[j].copy() for j in range(k)], [1] * k
    for M in batches:
        for i in M:
            a = argmin(norm(x[i] - c[j]) for j in range(k))
            S[a], v[a] = S[a] + x[i], v[a] + 1
        c = [S[j] / v[j] for j in range(k)]
    return np.array(c), np.array(v)


# Zhao et al. (2018)


def nearest(x, C):
    return argmin(norm(x - c) for c in C)


def algorithm_1(X, C, batches):
    """SGD and mini-batch k-means."""
    C, v = C.copy(), [0] * len(C)
    for M in batches:
        found = [nearest(X[i], C) for i in M]  # 6
        for i, j in zip(M, found, strict=True):
            v[j] += 1  # 9
            eta = 1 / v[j]  # 10
            C[j] = C[j] - eta * (C[j] - X[i])  # 11
    return C


def gradient_of(x, C, j):
    """Definition 2: zero but for the column of the nearest centroid."""
    out = np.zeros_like(C)
    out[j] = C[j] - x
    return out


def vrkm(X, C, epochs, eta, plus_plus=False, corrected=True, frozen=False, weighted=False):
    """Algorithms 3 and 4; without position correction, SVRG, which takes every step."""
    n, K, labels = len(X), len(C), None
    for picked in epochs:
        if labels is None or not frozen:
            labels = [nearest(x, C) for x in X]  # 3
        members = [[i for i in range(n) if labels[i] == j] for j in range(K)]
        means = np.array([np.mean(X[m], axis=0) if m else C[j] for j, m in enumerate(members)])
        new = means if corrected else C.copy()  # 4
        batch = np.zeros_like(C)
        for j, m in enumerate(members):  # 7
            for i in m:
                batch[j] += (new[j] - X[i]) / (n if weighted else len(m))
        C_t = new.copy()  # 5
        for i in picked:  # 9, 10
            now = labels[i] if frozen else nearest(X[i], C_t)  # 11
            if not corrected or now != labels[i] or not np.array_equal(C_t[now], new[labels[i]]):  # 12
                gamma = gradient_of(X[i], C_t, now) - gradient_of(X[i], new, labels[i])  # 13
                if not plus_plus:
                    gamma = gamma + batch
                C_t = C_t - eta * gamma  # 14
        C = C_t  # 16
    return C


# Shen et al. (2017)


def sign(v):
    return np.where(np.asarray(v) > 0, 1.0, -1.0)


def cluster_codes(e, C):
    """Alternate (13) and (12) until no label changes."""
    last = None
    while True:
        g = [argmin(norm(e_i - c) for c in C) for e_i in e]
        C = np.array([sign(sum(e[i] for i in range(len(e)) if g[i] == j)) if j in g else C[j] for j in range(len(C))])
        if g == last:
            return C, g
        last = g


def compressed(X, W, C, batches, alpha, nu, eta):
    """Lines 4 to 9 of Algorithm 1; return W, C, labels, and the objectives (8) and (5) after each round."""
    g = [argmin(norm(sign(W.T @ x) - c) for c in C) for x in X]
    history = []
    for batch in batches:
        e = [sign(-2 * C[g[i]] + alpha * (W.T @ X[i])) for i in range(len(X))]  # 5
        C, g = cluster_codes(e, C)  # 6
        step = np.zeros_like(W)
        for i in batch:  # 7
            f = W.T @ X[i]
            step += np.outer(X[i], sign(-2 * C[g[i]] + alpha * f) - sign(f))
        W = W - eta * step
        W = np.array([min(1, math.sqrt(nu) / norm(w)) * w for w in W.T]).T  # 8
        bound = loss = 0.0
        for i in range(len(X)):
            f = W.T @ X[i]
            e_i, h_i = sign(-2 * C[g[i]] + alpha * f), sign(f)
            bound += norm(e_i - C[g[i]]) ** 2 + alpha * e_i @ f - alpha * h_i @ f  # (8)
            loss += norm(h_i - C[g[i]]) ** 2  # (5)
        history.append((bound / len(X), loss / len(X)))
    return W, C, g, history


# Chen and Cai (2011)


def lsc_embedding(X, landmarks, r, k):
    D = np.array([[norm(x - u) ** 2 for u in landmarks] for x in X])
    sigma, Z = D.mean(), np.zeros_like(D)
    for i, row in enumerate(D):
        near = np.argsort(row, kind="stable")[:r]
        Z[i, near] = np.exp(-row[near] / (2 * sigma**2))
        Z[i] /= Z[i].sum()
    U, _, _ = np.linalg.svd(Z / np.maximum(np.sqrt(Z.sum(axis=0)), 1e-12), full_matrices=False)
    U = U[:, 1 : k + 1]
    return U / np.linalg.norm(U, axis=1, keepdims=True)
