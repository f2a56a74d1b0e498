"""`KMeans`: exact k-means by Lloyd's method or any of the faster ones that give the same result."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from sklearn.utils._param_validation import StrOptions

from ..data.rows import Rows
from ..data.types import Array
from ..execution.memory import Workload
from ..fit import partition
from ..fit.base import BaseCentroidClusterer
from ..fit.context import FitContext
from ..fit.parameters import keep
from ..fit.partition import Assign, Partition, PartitionInfo, StepStats
from ..fit.schema import Choice, Spec
from ..fit.solver import Solver
from .dispatch import ALGORITHMS, memory, select_algorithm
from .init import SETTLED


class LloydSolver(Solver):
    """Lloyd's algorithm: assign every row to its nearest centroid, move each centroid to the mean of its rows."""

    def __init__(self, rows: Rows, assigner: Assign, tol: float) -> None:
        super().__init__(rows)
        self.assigner, self.tol = assigner, tol

    def init(self, centers: Array, start: int) -> Partition:
        return partition.initial_partition(self.rows, centers)

    def step(self, state: Partition) -> tuple[Partition, PartitionInfo]:
        return partition.advance(self.rows, state, self.assigner)

    def converged(self, state: Partition, info: PartitionInfo) -> bool:
        return info.reassigned == 0 or info.shift <= self.tol

    def assign(self, rows: Rows, state: Partition) -> tuple[Iterable[StepStats], Any]:
        return self.assigner(rows, state)


class KMeans(BaseCentroidClusterer):
    """Exact k-means: Lloyd's result, to the last bit, for less work.

    Parameters
    ----------
    algorithm : {"auto", "lloyd", "hamerly", "elkan", "yinyang", "exponion", "projected"}, default="auto"
        How to find Lloyd's labels. All give the same result; "projected" is for dense rows.
    ...

    Attributes
    ----------
    ...
    history_ : list of dict
        One record a step of the start that was kept: step, seconds, energy (of the centres that came in), shift, rows
        (that bounds did not settle), distances (computed), reassigned (rows), start (which of them, from 0).
    algorithm_ : str
        What ran; "projected", chosen by "auto", may begin with steps of Lloyd's.

    Examples
    --------
    >>> import numpy as np
    >>> from shoal import KMeans
    >>> X = np.array([[1, 2], [1, 4], [1, 0], [10, 2], [10, 4], [10, 0]], dtype=np.float32)
    >>> model = KMeans(n_clusters=2, random_state=0).fit(X)
    >>> sorted(model.cluster_centers_[:, 0].tolist())
    [1.0, 10.0]
    >>> model.inertia_
    16.0
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **BaseCentroidClusterer._parameter_constraints,
        "algorithm": [StrOptions({"auto", *ALGORITHMS})],
    }

    _initializers = SETTLED

    algorithm: str

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        init: Any = "k-means++",
        n_init: int | str = "auto",
        max_iter: int = 300,
        tol: float = 1e-4,
        time_budget: float | None = None,
        algorithm: str = "auto",
        metric: str = "euclidean",
        random_state: Any = None,
        n_threads: int | None = None,
        callback: Callable[[dict[str, Any]], bool | None] | None = None,
        verbose: int = 0,
    ) -> None:
        keep(self, locals())

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self.algorithm != "projected"
        return tags

    def _memory(self, load: Workload) -> dict[str, float]:
        return {**super()._memory(load), **memory(self.algorithm, load.n, load.d, self.n_clusters, load.wide)}

    def _fitted_schema(self) -> dict[str, Spec]:
        return {**super()._fitted_schema(), "algorithm_": Choice(tuple(ALGORITHMS))}

    def _make_solver(self, context: FitContext) -> LloydSolver:
        self.algorithm_, assigner = select_algorithm(context.rows, self.n_clusters, self.algorithm, context.memory)
        return LloydSolver(context.rows, assigner, self.tol * context.variance)
