"""Kernels that learn hyperplanes for binary codes: votes of the rows, gradients and the loss of `CompressedKMeans`."""

from . import kernel


@kernel
def votes(
    F,  # IN (m, r): dot products of rows and hyperplane normals; a bit is set where they are positive
    labels,  # IN (m) int32
    weights,  # IN (m) float64
    out,  # ADD (k, r) float64: per cluster and bit, weight of the rows with the bit set minus weight of the others
):
    """Add up the weighted votes of the rows for each bit of their cluster's code."""
    for i in range(F.shape[0]):
        for j in range(F.shape[1]):
            out[labels[i], j] += weights[i] if F[i, j] > 0 else -weights[i]


@kernel
def doubts(
    F,  # IN (m, r): dot products of rows and hyperplane normals
    C,  # IN (k, r): codes of the clusters, -1 or +1
    labels,  # IN (m) int32
    weights,  # IN (m) float64
    alpha,  # IN weight of the dot products against the loss
    out,  # OUT (m, r): w (e - h), where h is the row's code and e its loss-augmented code
):
    """Compute the subgradient of the upper bound of the loss with respect to the dot products, up to a factor.

    e differs from h in the bits that agree with the cluster's code and whose dot product is below 2 / alpha in magnitude.
    """
    for i in range(F.shape[0]):
        for j in range(F.shape[1]):
            c = C[labels[i], j]
            h = 1.0 if F[i, j] > 0 else -1.0
            e = 1.0 if alpha * F[i, j] - 2 * c > 0 else -1.0
            out[i, j] = weights[i] * (e - h)


@kernel
def bound_and_loss(
    F,  # IN (m, r): dot products of rows and hyperplane normals
    C,  # IN (k, r): codes of the clusters, -1 or +1
    labels,  # IN (m) int32
    weights,  # IN (m) float64
    alpha,  # IN weight of the dot products against the loss
):
    """Return the upper bound and the loss, summed over rows and bits.

    The loss counts bits that differ from the cluster's code. The bound adds max(1 - alpha / 2 |f|, 0) for each bit that agrees.
    """
    bound = loss = 0.0
    for i in range(F.shape[0]):
        n_wrong, hinge = 0, 0.0
        for j in range(F.shape[1]):
            if (F[i, j] > 0) != (C[labels[i], j] > 0):
                n_wrong += 1
            else:
                hinge += max(1 - alpha / 2 * abs(F[i, j]), 0.0)
        loss += weights[i] * n_wrong
        bound += weights[i] * (n_wrong + hinge)
    return bound, loss
