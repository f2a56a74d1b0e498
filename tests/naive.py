"""Reference implementations in plain float64 NumPy, slow and simple, that the tests compare with."""

from itertools import permutations

import numpy as np
from scipy.special import logsumexp


def distances(X, C):
    """Return the (n, k) squared distances."""
    X, C = np.asarray(X, np.float64), np.asarray(C, np.float64)
    return np.stack([((X - c) ** 2).sum(axis=1) for c in C], axis=1)


def labels(X, C):
    """Return the nearest centroid of each row; of equal ones, the first."""
    return distances(X, C).argmin(axis=1)


def energy(X, C, weights=None):
    """Return the weighted sum of the squared distances to the nearest centroids."""
    weights = np.ones(len(X)) if weights is None else np.asarray(weights, np.float64)
    return float(weights @ distances(X, C).min(axis=1))


def fill_empty(X, C, names, weights):
    """Move each empty cluster to the row with the largest error, unless that is the only row of its cluster."""
    X, far = np.asarray(X, np.float64), distances(X, C)[np.arange(len(X)), names]
    far[weights == 0] = 0
    for empty in np.setdiff1d(np.arange(len(C)), names[weights > 0]):
        sizes = np.bincount(names[weights > 0], minlength=len(C))
        able = np.where(sizes[names] > 1, far, 0)
        worst = able.argmax()
        if able[worst] > 0:
            names[worst] = empty
            far = np.minimum(far, ((X - X[worst]) ** 2).sum(axis=1))
    return names


def lloyd(X, C, max_iter=300, tol=0.0, weights=None):
    """Run Lloyd's algorithm; return centroids, the energy of the input centroids of each step, and the number of steps."""
    X, C = np.asarray(X, np.float64), np.array(C, np.float64)
    weights = np.ones(len(X)) if weights is None else np.asarray(weights, np.float64)
    old, energies = None, []
    for _ in range(max_iter):
        energies.append(energy(X, C, weights))
        names = fill_empty(X, C, labels(X, C), weights)
        new = means(X, names, C, weights)
        shift, C = ((new - C) ** 2).sum(), new
        if np.array_equal(names, old) or shift <= tol:
            break
        old = names
    return C, energies


def members(names, C):
    """Yield the mask of its rows and the position of each centroid."""
    return [(names == j, c) for j, c in enumerate(C)]


def log_densities(X, C, variance):
    """Return the (n, k) log densities of the Gaussians at each row, including their weight of 1 / k."""
    k, d = np.shape(C)
    return -distances(X, C) / (2 * variance) - d / 2 * np.log(2 * np.pi * variance) - np.log(k)


def mixture(X, C, variance, steps, weights=None):
    """Run EM for Gaussians of equal weight and fixed variance; return centroids and the log-likelihood of each step's input."""
    X, C = np.asarray(X, np.float64), np.array(C, np.float64)
    weights, likelihoods = np.ones(len(X)) if weights is None else np.asarray(weights, np.float64), []
    for _ in range(steps):
        L = log_densities(X, C, variance)
        total = logsumexp(L, axis=1)
        likelihoods.append(weights @ total)
        R = weights[:, None] * np.exp(L - total[:, None])
        lost = R.sum(axis=0) <= 1e-290 * weights.sum()
        far = np.where(weights > 0, distances(X, C).min(axis=1), 0)
        C = np.array([c if gone else r @ X / r.sum() for r, c, gone in zip(R.T, C, lost, strict=True)])
        if lost.any() and far.any():
            C[lost.argmax()] = X[far.argmax()]
    return C, likelihoods


def means(X, names, C, weights):
    """Return the mean of each cluster; an empty cluster keeps its centroid."""
    return np.array(
        [np.average(X[own], axis=0, weights=weights[own]) if weights[own].any() else c for own, c in members(names, C)]
    )


def unit(X):
    """Scale the rows to unit length."""
    X = np.asarray(X, np.float64)
    return X / np.linalg.norm(X, axis=1)[:, None]


def spherical(X, C, max_iter=300):
    """Run spherical k-means; return centroids, labels and the sum of 1 - cosine."""
    X, C = unit(X), unit(C)
    for _ in range(max_iter):
        names = labels(X, C)
        C = unit([X[names == j].sum(axis=0) for j in range(len(C))])
    return C, labels(X, C), float((1 - (X @ C.T).max(axis=1)).sum())


def mini_batch(X, C, batches, weights=None, weight_sums=None, spherical=False, radius=None):
    """Run mini-batch k-means with running means; batches of one row are online k-means.

    Return centroids, their weights, and the energy of each batch before its update.
    """
    X, C = np.asarray(X, np.float64), np.array(C, np.float64)
    weights = np.ones(len(X)) if weights is None else np.asarray(weights, np.float64)
    means, v, energies = C.copy(), np.zeros(len(C)) if weight_sums is None else np.array(weight_sums, np.float64), []
    for batch in batches:
        energies.append(energy(X[batch], C, weights[batch]))
        for i, j in zip(batch, labels(X[batch], C), strict=True):
            v[j] += weights[i]
            means[j] += weights[i] / (v[j] or 1) * (X[i] - means[j])
        C = unit(means) if spherical else means.copy()
        if radius is not None:
            C = means = np.array([into_l1_ball(c, radius) for c in C])
    return C, v, energies


def into_l1_ball(v, radius):
    """Project onto the L1 ball of this radius, by bisection as in Sculley (2010)."""
    low, high = 0.0, np.abs(v).max()
    if np.abs(v).sum() <= radius:
        return v
    for _ in range(100):
        theta = (low + high) / 2
        low, high = (theta, high) if np.maximum(np.abs(v) - theta, 0).sum() > radius else (low, theta)
    return np.sign(v) * np.maximum(np.abs(v) - high, 0)


def gradient(X, C, rates, orders=None, weights=None, spherical=False):
    """Run gradient descent with one learning rate per epoch, on all rows at once or row by row in the order of the epoch."""
    X, C = np.asarray(X, np.float64), np.array(C, np.float64)
    weights = np.ones(len(X), int) if weights is None else weights
    for t, eps in enumerate(rates):
        if orders is None:
            C = C + [eps * weights[own] @ (X[own] - c) for own, c in members(labels(X, C), C)]
            C = unit(C) if spherical else C
            continue
        for i in orders[t]:
            j = labels(X[[i]], C)[0]
            for _ in range(weights[i]):
                C[j] += eps * (X[i] - C[j])
            C[j] = unit(C[[j]])[0] if spherical else C[j]
    return C


def plus_plus(X, k, rng):
    """Run k-means++ as published: draw each further centroid with probability proportional to the squared distance."""
    chosen = [rng.integers(len(X))]
    for _ in range(k - 1):
        far = distances(X, X[chosen]).min(axis=1)
        chosen.append(rng.choice(len(X), p=far / far.sum()))
    return X[chosen]


def two_best(X, C):
    """Return the (n, 2) lowest two scores |c|^2 - 2 x.c."""
    scores = (np.asarray(C, np.float64) ** 2).sum(axis=1) - 2 * np.asarray(X, np.float64) @ np.asarray(C, np.float64).T
    return np.sort(np.column_stack([scores, np.full(len(X), np.inf)]), axis=1)[:, :2]


def accuracy(true, found):
    """Return the fraction of correctly labelled rows under the best one-to-one map from clusters to classes."""
    names = list(range(max(max(true), max(found)) + 1))
    maps = (np.array(p) for p in permutations(names))
    return max(float(np.mean(p[np.asarray(found)] == np.asarray(true))) for p in maps)


def purity(true, found):
    """Return the fraction of rows that belong to the most frequent class of their cluster."""
    true, found = np.asarray(true), np.asarray(found)
    return sum(np.bincount(true[found == j]).max() for j in np.unique(found)) / len(true)


def nested(X, C, order, size, rho, steps):
    """Run nested mini-batch k-means (Newling and Fleuret, Algorithm 5, without bounds); yield batch, labels and centroids.

    Batches of more than a quarter of the rows are left out.
    """
    C, out = C.astype(float), []
    for _ in range(steps):
        batch = X[order[:size]].astype(float)
        a = labels(batch, C)
        v = np.bincount(a, minlength=len(C))
        sse = np.bincount(a, ((batch - C[a]) ** 2).sum(axis=1), len(C))
        sigma = np.sqrt(sse / (v * (v - 1)))
        old, C = C, np.array([batch[a == j].mean(axis=0) for j in range(len(C))])
        out.append((size, a, C))
        with np.errstate(divide="ignore"):
            if (sigma / np.linalg.norm(C - old, axis=1)).min() > rho:
                size = 2 * size if 2 * size <= len(X) / 4 else len(X)
    return out


def variance_reduced(X, C, epochs, eta, variant="vrkm++", correction=True, weights=None):
    """Run VRKM or VRKM++ row by row; `epochs` lists the rows drawn in each epoch."""
    X, C = np.asarray(X, np.float64), np.array(C, np.float64)
    weights = np.ones(len(X)) if weights is None else np.asarray(weights, np.float64)
    for picked in epochs:
        names = fill_empty(X, C, labels(X, C), weights)
        corrected = means(X, names, C, weights)
        snapshot = corrected if correction else C
        batch = snapshot - corrected if variant == "vrkm" else 0
        C = snapshot.copy()
        for x, old in zip(X[picked], names[picked], strict=True):
            new = labels([x], C)[0]
            if correction and new == old and np.array_equal(C[new], snapshot[old]):
                continue
            gamma = np.zeros_like(C)
            gamma[new] += C[new] - x
            gamma[old] -= snapshot[old] - x
            C = C - eta * (gamma + batch)
    return C


def variance_reduced_block(X, C, names, snapshot, eta):
    """Update centroids by a block of rows at once, with step size 1 - (1 - eta)^N for N rows of a cluster."""
    new, total = labels(X, C), np.zeros_like(C)
    for x, now, old in zip(X, new, names, strict=True):
        total[now] += C[now] - x
        total[old] -= snapshot[old] - x
    N = np.maximum(np.bincount(new, minlength=len(C)), 1)
    return C - ((1 - (1 - eta) ** N) / N)[:, None] * total


def pack(bits):
    """Pack bits into 64-bit words, least significant bit first."""
    words = [[sum(int(b) << i for i, b in enumerate(row[a : a + 64])) for a in range(0, len(row), 64)] for row in bits]
    return np.array(words, np.uint64)


def signs(X, mean, W):
    """Return x.w > mean.w, with float64 sums in column order."""

    def dots(x):
        total = np.zeros(np.shape(W)[1])
        for value, w in zip(x, np.asarray(W, np.float64), strict=True):
            total = total + float(value) * w
        return total

    return np.array([dots(x) > dots(mean) for x in X])


def hamming(B, C):
    """Return the (n, k) Hamming distances."""
    return (np.asarray(B, bool)[:, None] != np.asarray(C, bool)[None]).sum(axis=2)


def binary_kmeans(B, C, max_iter=300, weights=None):
    """Run bk-means (Shen et al. 2017, (12) and (13)); return centroids and the energy of each step's input.

    Bits with tied votes keep their value.
    """
    B, C, energies = np.asarray(B, bool), np.array(C, bool), []
    weights = np.ones(len(B)) if weights is None else np.asarray(weights, np.float64)
    for _ in range(max_iter):
        far = hamming(B, C)
        energies.append(float(weights @ far.min(axis=1)))
        names = fill_empty(B, C, far.argmin(axis=1), weights)
        votes = np.array([weights[own] @ np.where(B[own], 1, -1) for own, _ in members(names, C)])
        old, C = C, np.where(votes == 0, C, votes > 0)
        if np.array_equal(old, C):
            break
    return C, energies


def compressed(X, W, C, batches, alpha, nu, eta):
    """Run compressed k-means (Shen et al. 2017, Algorithm 1) on centered rows, one batch per round.

    Return W, C, and the upper bound (8) and the loss (5) after every round, in bits per row.
    """
    names, history = hamming(X @ W > 0, C).argmin(axis=1), []
    for batch in [None, *batches]:
        if batch is not None:
            step = np.zeros_like(W)
            for i in batch:
                f, c = X[i] @ W, np.where(C[names[i]], 1, -1)
                e, h = np.where(alpha * f - 2 * c > 0, 1, -1), np.where(f > 0, 1, -1)
                step += np.outer(X[i], e - h)
            W = W - eta * step
            W = W * np.minimum(1, np.sqrt(nu) / np.linalg.norm(W, axis=0))
        F, own = X @ W, np.where(C, 1, -1)[names]
        E = alpha * F - 2 * own > 0
        C, _ = binary_kmeans(E, C)
        names = hamming(E, C).argmin(axis=1)
        F, own = X @ W, np.where(C, 1, -1)[names]
        h, e = np.where(F > 0, 1, -1), np.where(alpha * F - 2 * own > 0, 1, -1)
        loss = ((h - own) ** 2).sum(axis=1)
        bound = ((e - own) ** 2).sum(axis=1) + alpha * (F * (e - h)).sum(axis=1)
        history.append((bound.mean() / 4, loss.mean() / 4))
    return W, C, history[1:]


def affinity(X, sigma, Y=None):
    """Return exp(-|x - y|^2 / sigma^2); sigma^2 may be a product of local scales. The diagonal is zero."""
    A = np.exp(-distances(X, X if Y is None else Y) / np.asarray(sigma) ** 2)
    return A if Y is not None else A * (1 - np.eye(len(X)))


def laplacian(A):
    """Return D^-1/2 A D^-1/2; rows without affinities are zero."""
    d = A.sum(axis=1)
    s = np.array([1 / np.sqrt(x) if x > 0 else 0.0 for x in d])
    return s[:, None] * A * s


def leading(L, k):
    """Return the k leading eigenvectors and their eigenvalues."""
    values, vectors = np.linalg.eigh(L)
    return vectors[:, ::-1][:, :k], values[::-1][:k]


def sines(U, W):
    """Return the sines of the angles between two subspaces, given orthonormal bases."""
    return np.sqrt(np.maximum(1 - np.linalg.svd(U.T @ W)[1] ** 2, 0))


def stochastic_gradient(L, vectors, W):
    """Return the mean of L r r' W and its component orthogonal to W (Han and Filippone 2017, Algorithm 1)."""
    G = np.zeros_like(W)
    for r in vectors:
        G += np.outer(L @ r, r @ W) / len(vectors)
    return G - W @ (W.T @ G)


def mini_batch_spectral(L, W, batches, rate, epsilon=1e-10):
    """Run Algorithm 2 of the same paper by gradient ascent; `batches` are the vectors r of each step."""
    M = np.zeros_like(W)
    for vectors in batches:
        H = stochastic_gradient(L, vectors, W)
        M = M + H**2
        Q, R = np.linalg.qr(W + rate * H / (epsilon + np.sqrt(M)))
        W = Q * np.sign(np.diag(R))
    return W


def harmonic_spectral(L, W, batches):
    """Run Algorithm 2 with steps of 2 / (t + 2) in units of W' L W, which is averaged with the same weights."""
    T = np.zeros((W.shape[1],) * 2)
    for t, vectors in enumerate(batches):
        G = sum(np.outer(L @ r, r @ W) for r in vectors) / len(vectors)
        a = 2 / (t + 2)
        T = (1 - a) * T + a * (W.T @ G + G.T @ W) / 2
        values, V = np.linalg.eigh(T)
        Q, R = np.linalg.qr(W + a * (G - W @ (W.T @ G)) @ (V / np.maximum(values, 1e-3 * values[-1]) @ V.T))
        W = Q * np.sign(np.diag(R))
    return W


def nystrom(K, ids, k):
    """Return eigenvectors and eigenvalues of the normalized Nystrom approximation (Fowlkes et al. 2004, one-shot method).

    K has ones on its diagonal, and the sample `ids` comes first.
    """
    m = len(ids)
    order = np.r_[ids, np.setdiff1d(np.arange(len(K)), ids)]
    A, B = K[np.ix_(ids, ids)], K[np.ix_(ids, order[m:])]
    inverse = np.linalg.pinv(A, rcond=1e-10, hermitian=True)
    d = np.r_[A.sum(axis=1) + B.sum(axis=1), B.sum(axis=0) + B.T @ inverse @ B.sum(axis=1)]
    A, B = A / np.sqrt(np.outer(d[:m], d[:m])), B / np.sqrt(np.outer(d[:m], d[m:]))
    values, V = np.linalg.eigh(A)
    there = values > 1e-10 * values[-1]
    root = V[:, there] / np.sqrt(values[there]) @ V[:, there].T
    U, values, _ = np.linalg.svd(A + root @ B @ B.T @ root)
    out = np.empty((len(K), k))
    out[order] = np.vstack([A, B.T]) @ root @ (U[:, :k] / np.sqrt(values[:k]))
    return out, values[:k]


def landmark_spectral(X, C, nearest, sigma, k):
    """Return left singular vectors and squared singular values of the weights of the nearest landmarks (Chen and Cai 2011).

    Without sigma, each row has its own scale.
    """
    far = distances(X, C)
    Z = np.zeros_like(far)
    for i, row in enumerate(far):
        near = np.argsort(row, kind="stable")[:nearest]
        Z[i, near] = np.exp(-row[near] / (row[near].mean() if sigma is None else sigma**2))
    Z /= Z.sum(axis=1, keepdims=True)
    U, s, _ = np.linalg.svd(Z[:, Z.any(axis=0)] / np.sqrt(Z.sum(axis=0)[Z.any(axis=0)]), full_matrices=False)
    return U[:, :k], s[:k] ** 2


def neighbors(X, count):
    """Return the nearest other rows of each row, nearest first."""
    far = distances(X, X)
    np.fill_diagonal(far, np.inf)
    return np.argsort(far, axis=1, kind="stable")[:, :count]


def simplified_silhouette(X, C, names):
    """Return the mean of (b - a) / max(a, b) for distances a to the own and b to the next centroid; 0 for single rows."""
    D = np.sqrt(distances(X, C))
    total = 0.0
    for row, name in zip(D, names, strict=True):
        a, b = row[name], np.delete(row, name).min()
        total += (b - a) / max(a, b) if max(a, b) > 0 and np.count_nonzero(names == name) > 1 else 0
    return total / len(D)


def davies_bouldin(X, C, names):
    """Return the Davies-Bouldin index of the non-empty clusters."""
    D = np.sqrt(distances(X, C))
    filled = np.unique(names)
    widths = {j: D[names == j, j].mean() for j in filled}
    apart = np.sqrt(distances(C, C))
    pairs = [[(widths[i] + widths[j]) / apart[i, j] for j in filled if j != i] for i in filled]
    return float(np.mean([max(pair) for pair in pairs]))
