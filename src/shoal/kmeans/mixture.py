"""A mixture of k Gaussians of equal weight and fixed variance, fitted by EM: k-means whose rows belong to all centres.

L. Bottou, Y. Bengio (1995), Convergence properties of the k-means algorithms, NIPS, section 5.
A. P. Dempster, N. M. Laird, D. B. Rubin (1977), Maximum likelihood from incomplete data via the EM algorithm,
doi:10.1111/j.2517-6161.1977.tb01600.x.
Differs from the paper: its variance is 1 and rows are scaled to that; here it may be named instead. A centre so far from
all rows that float64 has no probabilities left for it moves to the row that is served worst, one centre a step.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator
from numbers import Real
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.utils._param_validation import Interval

from ..data.blocks import Block, Centers, rounding
from ..data.cancellation import pieces
from ..data.rows import Rows
from ..data.types import Array
from ..data.validation import check_weights
from ..execution.engine import lazy_on_dask
from ..execution.threads import on_threads
from ..execution.time_estimate import labelling_seconds
from ..fit import partition
from ..fit.base import BaseCentroidClusterer
from ..fit.centroid_model import near_block
from ..fit.context import FitContext
from ..fit.loop import Limits, RunResult
from ..fit.parameters import keep
from ..fit.partition import Partition, StepStats
from ..fit.restarts import FitResult
from ..fit.schema import Number, Spec
from ..fit.solver import Solver
from .dispatch import assign_once
from .init import INITIALIZERS

FLOAT = np.dtype(np.float64)  # what probabilities are computed in, whatever the rows are
AT_ONCE = 1 << 18  # probabilities at a time: they should stay in the cache
VAGUE = 1e-8  # an exponent may be off by this much; where scores can't promise it, distances are computed
NOTHING = 750.0  # exp of minus this is zero
LOST = 1e-290  # a mass this small beside that of all has lost its digits


class Bell(NamedTuple):
    """The density around a centre, for rows that are scaled by 2^exponent."""

    variance: float  # of a column, as the user knows it
    exponent: int

    def over(self, squares: Any) -> Any:
        """Squared distances of the frame by twice the variance: right, zero or infinite, wherever float64 ends."""
        digits, place = math.frexp(self.variance)
        with np.errstate(over="ignore", under="ignore"):
            return np.ldexp(squares / (2 * digits), -(place + 2 * self.exponent))

    @property
    def rate(self) -> float:
        """The same as a factor. It is finite, so that no difference of distances is no difference."""
        return min(float(self.over(1.0)), sys.float_info.max)

    def height(self, k: int, d: int) -> float:
        """Log of the density at a centre, times its weight of 1 / k."""
        return -math.log(k) - d / 2 * (math.log(2 * math.pi) + math.log(self.variance))


class Soft(NamedTuple):
    """How rows belong to the centres."""

    parts: Array  # (m, k): probability of each centre, given the row
    nearest: Array  # (m): squared distance from the nearest centre
    others: Array  # (m): log of all centres' density, in units of the nearest one's: from 0 to log k

    def log_density(self, bell: Bell, d: int) -> Array:
        return np.asarray(self.others - bell.over(self.nearest) + bell.height(self.parts.shape[1], d))


class MixtureState(NamedTuple):
    centers: Array  # (k, d) float64
    fit: float = -math.inf  # log-likelihood of the centres before these, but for what is the same for all centres


class MixtureInfo(NamedTuple):
    """What one step learned."""

    energy: float  # of the centres that came in: squared distances from the nearest, over all rows
    log_likelihood: float  # of all rows, under the centres that came in
    gain: float  # by how much that is more than under the centres before, for a row of weight 1
    shift: float  # sum of the squared moves of the centres
    rows: int
    distances: int


class MixtureShare(NamedTuple):
    """What rows have to say about the centres."""

    sums: Array  # (k, d), or (0, 0) where centres are not to move
    weight_sums: Array  # (k)
    energy: float
    others: float
    worst: tuple[float, int]  # the row that is served worst: its squared distance, its number

    def plus(self, other: MixtureShare) -> MixtureShare:
        """Both. The arrays of this one are reused."""
        np.add(self.sums, other.sums, out=self.sums)
        np.add(self.weight_sums, other.weight_sums, out=self.weight_sums)
        worst = max(self.worst, other.worst, key=lambda pair: pair[0])
        return self._replace(energy=self.energy + other.energy, others=self.others + other.others, worst=worst)


def soften(block: Block, centers: Centers, bell: Bell) -> Soft:
    """Probabilities by how much farther than the nearest centre each of the others is."""
    every, rate = np.arange(len(block)), bell.rate
    G = block.scores(centers, slice(None))
    G += centers.norms2 - centers.z2  # they are bounds, hence low: here they are to be right
    near = G.argmin(axis=1)
    G -= G[every, near][:, None]
    with np.errstate(over="ignore", under="ignore"):
        off = rounding(FLOAT, centers.C.shape[1]) * rate * (block.squared_norms() + centers.norms2.max())
        vague = np.flatnonzero(off > VAGUE)
        if len(vague):
            line, ids = np.nonzero(G[vague] * rate <= NOTHING + 2 * off[vague, None])
            D = np.full((len(vague), G.shape[1]), np.inf)
            D[line, ids] = block.pair_distances(vague[line], ids, centers)
            near[vague] = D.argmin(axis=1)
            G[vague] = D - D.min(axis=1)[:, None]
        G *= -rate
        np.exp(G, out=G)
    total = G.sum(axis=1)
    G /= total[:, None]
    return Soft(G, block.pair_distances(every, near, centers), np.log(total))


def _pieces(block: Block, centers: Centers, bell: Bell) -> Iterator[tuple[slice, Block, Soft]]:
    step = max(1, AT_ONCE // len(centers.C))
    for here in pieces(len(block), step):
        part = block.take(here)
        yield here, part, soften(part, centers, bell)


def _nothing(C: Array, move: bool) -> MixtureShare:
    return MixtureShare(np.zeros(C.shape if move else (0, 0)), np.zeros(len(C)), 0.0, 0.0, (0.0, 0))


def _weigh_block(start: int, raw: Any, weights: Array, rows: Rows, centers: Centers, bell: Bell, move: bool) -> MixtureShare:
    """One block's share of a step, or of the likelihood alone: sums take half of the time, and more for sparse rows."""
    share = _nothing(centers.C, move)
    for here, part, soft in _pieces(rows.convert(raw, FLOAT), centers, bell):
        X: Any = part.X
        w = weights[here]
        R = np.multiply(soft.parts, w[:, None], out=soft.parts)
        far = np.where(w > 0, soft.nearest, 0)
        at = int(far.argmax())
        sums = R.T @ X if move else share.sums
        mine = MixtureShare(
            sums, R.sum(axis=0), float(w @ far), float(w @ soft.others), (float(far[at]), start + here.start + at)
        )
        share = share.plus(mine)
    return share


def _parts_block(start: int, raw: Any, out: Array, rows: Rows, centers: Centers, bell: Bell) -> None:
    for here, _, soft in _pieces(*near_block(start, raw, rows, centers), bell):
        out[here] = soft.parts


def _density_block(start: int, raw: Any, out: Array, rows: Rows, centers: Centers, bell: Bell) -> None:
    for here, _, soft in _pieces(*near_block(start, raw, rows, centers), bell):
        out[here] = soft.log_density(bell, rows.d)


def weigh(rows: Rows, C: Array, bell: Bell, move: bool) -> MixtureShare:
    """What all rows have to say about the centres."""
    share = _nothing(C, move)
    for block in rows.map_raw_blocks(_weigh_block, rows, rows.prepare(C), bell, move, per_row=(rows.weights,)):
        share = share.plus(block)
    return share


def log_likelihood(share: MixtureShare, bell: Bell, k: int, d: int) -> float:
    """Of the rows that a share is of."""
    return share.others - float(bell.over(share.energy)) + float(share.weight_sums.sum()) * bell.height(k, d)


def step(rows: Rows, state: MixtureState, bell: Bell) -> tuple[MixtureState, MixtureInfo]:
    """One round of EM: how likely does each row belong to each centre; and each centre to the mean of what is its own."""
    C = state.centers
    k, d = C.shape
    share = weigh(rows, C, bell, move=True)
    mass = float(share.weight_sums.sum())
    own = share.weight_sums > LOST * mass
    means = np.divide(share.sums, share.weight_sums[:, None], out=C.copy(), where=own[:, None])
    far, row = share.worst
    if far > 0 and not own.all():
        means[np.argmin(own)] = rows.take(np.array([row]))[0]
    fit = share.others - float(bell.over(share.energy))
    gain = (fit - state.fit) / mass
    info = MixtureInfo(
        share.energy, log_likelihood(share, bell, k, d), gain, float(((means - C) ** 2).sum()), len(rows), len(rows) * k
    )
    return MixtureState(means, fit), info


class MixtureSolver(Solver):
    """EM for a mixture of spherical Gaussians of equal weight and one fixed variance."""

    info_type = MixtureInfo

    def __init__(self, rows: Rows, bell: Bell, tol: float) -> None:
        super().__init__(rows)
        self.bell, self.tol = bell, tol

    def init(self, centers: Array, start: int) -> MixtureState:
        return MixtureState(centers.astype(FLOAT))

    def step(self, state: MixtureState) -> tuple[MixtureState, MixtureInfo]:
        return step(self.rows, state, self.bell)

    def converged(self, state: MixtureState, info: MixtureInfo) -> bool:
        return info.gain <= self.tol or info.shift == 0

    def assign(self, rows: Rows, state: Partition) -> tuple[Iterable[StepStats], Any]:
        return assign_once(rows, state)

    def finalize(self, result: RunResult, limits: Limits, skipped: list[str]) -> tuple[RunResult, float]:
        """Return labels, energy and likelihood of the published centroids. Centroids that coincide are not separated."""
        if not result.history:
            skipped.append("no step over the rows was completed")
        return self.evaluate(result)

    def evaluate(self, result: RunResult) -> tuple[RunResult, float]:
        rows = self.rows
        state = self.publish(partition.initial_partition(rows, result.state.centers))
        state = partition.label(rows, state, self.assign)
        k, d = state.centers.shape
        share = weigh(rows, state.centers.astype(FLOAT), self.bell, move=False)
        info = MixtureInfo(share.energy, log_likelihood(share, self.bell, k, d), 0.0, 0.0, len(rows), len(rows) * k)
        return result._replace(state=state, info=info), -info.log_likelihood

    def labelling_seconds(self, k: int) -> float:
        def likelihood(block: Any, centers: Centers) -> None:
            wide = type(block)(block.X.astype(FLOAT))
            for _ in _pieces(wide, self.rows.prepare(centers.C.astype(FLOAT)), self.bell):
                pass

        return super().labelling_seconds(k) + labelling_seconds(self.rows, k, likelihood)


class SphericalMixture(BaseCentroidClusterer):
    """Soft k-means: a mixture of Gaussians of equal weight and one fixed variance, of which only the centres are learned.

    Each row belongs to every centre with some probability (`predict_proba`); EM moves the centres to where the rows are
    most likely. Distances are euclidean.

    Parameters
    ----------
    n_clusters : int, default=8
        How many Gaussians.
    variance : float, default=1.0
        Of every Gaussian, in each column, in the square of X's own unit. It is not learned: scale X so that clusters have
        about unit variance, or say what they have (of a k-means model of n rows and d columns: `inertia_ / (n * d)`). The
        less it is, the more the result is that of k-means; where it is well above the variance of X, all centres meet at
        the mean.
    n_init : "auto" or int, default="auto"
        How many starts to try; the likeliest is kept. "auto" is 1, but 10 for "random" and callables. An array is one
        start, whatever n_init says.
    tol : float, default=1e-4
        Stop when a step has raised the log-likelihood of a row, in the mean, by no more than this.
    ...

    Attributes
    ----------
    ...
    log_likelihood_ : float
        Of all rows under the model: the sum of `score_samples(X)`, each times its row's weight.
    history_ : list of dict
        One record a step of the start that was kept: step, seconds, energy and log_likelihood (of the centres that came
        in), gain (of log-likelihood over the step before, for a row), shift, rows, distances, start (which of them).

    Notes
    -----
    `predict` names the nearest centre, which is the likeliest, too, and `inertia_` is the energy of k-means. But `score`
    is the mean log-likelihood, as in scikit-learn's GaussianMixture.

    Examples
    --------
    >>> import numpy as np
    >>> from shoal import SphericalMixture
    >>> X = np.array([[0.0], [2.0], [6.0], [8.0]])
    >>> model = SphericalMixture(n_clusters=2, random_state=0).fit(X)
    >>> sorted(model.cluster_centers_.ravel().round(2).tolist())
    [1.0, 7.0]
    >>> model.predict_proba([[4.0], [100.0]]).max(axis=1).round(2).tolist()
    [0.5, 1.0]
    """

    _center_arrays = (6, 3)
    _dense_shares = True
    _initializers = INITIALIZERS
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **{name: rule for name, rule in BaseCentroidClusterer._parameter_constraints.items() if name != "metric"},
        "variance": [Interval(Real, 0, None, closed="neither")],
    }

    _model_parameters = ("variance",)
    variance: float
    log_likelihood_: float

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        variance: float = 1.0,
        init: Any = "k-means++",
        n_init: int | str = "auto",
        max_iter: int = 300,
        tol: float = 1e-4,
        time_budget: float | None = None,
        random_state: Any = None,
        n_threads: int | None = None,
        callback: Callable[[dict[str, Any]], bool | None] | None = None,
        verbose: int = 0,
    ) -> None:
        keep(self, locals())

    def _bell(self, rows: Rows) -> Bell:
        return Bell(float(self.variance), rows.frame.exponent)

    def _make_solver(self, context: FitContext) -> MixtureSolver:
        return MixtureSolver(context.rows, self._bell(context.rows), self.tol)

    def _fitted_schema(self) -> dict[str, Spec]:
        return {**super()._fitted_schema(), "log_likelihood_": Number(finite=False)}

    def _energy(self, result: FitResult) -> float:
        return float(result.run.info.energy)

    def _set_fitted_attributes(self, result: FitResult) -> None:
        super()._set_fitted_attributes(result)
        self.log_likelihood_ = -result.loss

    def _explain_empty_clusters(self, found: int, rows: Rows) -> str:
        return (
            f"Number of distinct clusters ({found}) found smaller than n_clusters ({self.n_clusters}): centres have met, or "
            f"stand where no row is nearest to them; variance={self.variance} is too much to part them, or X has too few "
            "distinct rows."
        )

    def _ask(self, fn: Callable[..., None], rows: Rows, centers: Centers, out: Array) -> Array:
        """Filled in by what the function has to say of each row, in float64."""
        centers = rows.prepare(centers.C.astype(FLOAT))
        with on_threads(rows.with_dtype(FLOAT), self.n_threads) as rows:
            rows.for_each_raw(fn, rows, centers, self._bell(rows), per_row=(out,))
        return out

    @lazy_on_dask
    def predict_proba(self, X: Any) -> Array:
        """How likely each row belongs to each centre.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (n_samples, n_features)
            Rows with the columns of the fit.

        Returns
        -------
        probabilities : array of shape (n_samples, n_clusters)
            Each row adds up to 1. float32 if these rows and those of the fit are clustered in it, else float64.
        """
        rows, centers = self._rows(X)
        return self._ask(_parts_block, rows, centers, np.empty((len(rows), len(centers.C)), rows.dtype))

    @lazy_on_dask
    def score_samples(self, X: Any) -> Array:
        """The log-likelihood of each row under the model.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (n_samples, n_features)
            Rows with the columns of the fit.

        Returns
        -------
        log_likelihoods : float64 array of shape (n_samples,)
        """
        rows, centers = self._rows(X)
        return self._ask(_density_block, rows, centers, np.empty(len(rows)))

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """The mean log-likelihood of these rows under the model: the higher, the better.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (n_samples, n_features)
            Rows with the columns of the fit.
        y : ignored
        sample_weight : array of shape (n_samples,), float or None, default=None
            How much each row counts; None for 1 each.

        Returns
        -------
        score : float
        """
        samples = np.asarray(self.score_samples(X))
        weights = check_weights(sample_weight, len(samples))
        if weights is None:
            return float(samples.mean())
        return float(np.average(samples[weights > 0], weights=weights[weights > 0]))
