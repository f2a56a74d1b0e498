"""Kernels for hyperplanes that learn: products of rows with them, and the codes of the clusters that the rows are in."""

from . import kernel


@kernel
def votes(
    F,  # IN (m, r): products of rows with directions; a bit is set where they are above 0
    labels,  # IN (m) int32
    weights,  # IN (m) float64
    out,  # ADD (k, r) float64: for each bit of each cluster, what those weigh that have it less those that have not
):
    for i in range(F.shape[0]):
        for j in range(F.shape[1]):
            out[labels[i], j] += weights[i] if F[i, j] > 0 else -weights[i]


@kernel
def doubts(
    F,  # IN (m, r)
    C,  # IN (k, r) of -1 and +1
    labels,  # IN (m) int32
    weights,  # IN (m) float64
    alpha,  # IN
    out,  # OUT (m, r): e - h times the weight, of the loss-augmented code e and the code h
):
    """e differs from h in bits that are as the cluster's, but by a product of less than 2 / alpha."""
    for i in range(F.shape[0]):
        for j in range(F.shape[1]):
            c = C[labels[i], j]
            h = 1.0 if F[i, j] > 0 else -1.0
            e = 1.0 if alpha * F[i, j] - 2 * c > 0 else -1.0
            out[i, j] = weights[i] * (e - h)


@kernel
def bound_and_loss(
    F,  # IN (m, r)
    C,  # IN (k, r) of -1 and +1
    labels,  # IN (m) int32
    weights,  # IN (m) float64
    alpha,  # IN
):
    """Sums over rows and bits: 1 for a bit that is not as the cluster's, and for the bound one less alpha / 2 times the
    product, if that is more than nothing, for one that is."""
    bound = loss = 0.0
    for i in range(F.shape[0]):
        wrong, short = 0, 0.0
        for j in range(F.shape[1]):
            if (F[i, j] > 0) != (C[labels[i], j] > 0):
                wrong += 1
            else:
                short += max(1 - alpha / 2 * abs(F[i, j]), 0.0)
        loss += weights[i] * wrong
        bound += weights[i] * (wrong + short)
    return bound, loss
