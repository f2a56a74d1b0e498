"""Parameters of estimators: constraints, and shared assignment and documentation."""

from __future__ import annotations

import inspect
import re
from numbers import Integral
from typing import Any

from sklearn.utils._param_validation import Interval

MAX_THREADS = 1024  # largest n_threads, since every thread may hold a block of rows and has a stack


class Count(Interval):
    """Constraint for integers from 1 to `largest` (unbounded if None). Booleans are rejected."""

    def __init__(self, largest: int | None = None) -> None:
        super().__init__(Integral, 1, largest, closed="left" if largest is None else "both")

    def is_satisfied_by(self, val: Any) -> bool:
        return not isinstance(val, bool) and bool(super().is_satisfied_by(val))


def keep(model: Any, given: dict[str, Any]) -> None:
    """Assign the parameters of a constructor to attributes of the same names."""
    for name in inspect.signature(type(model)).parameters:
        setattr(model, name, given[name])


def share_docs(cls: type, parameters: str, attributes: str) -> None:
    """Insert shared descriptions of parameters and attributes into the docstring of a class, where it has `...`."""
    doc, own = cls.__doc__ or "", inspect.signature(cls).parameters
    words = {name: parameter.default for name, parameter in own.items()}
    entries = re.findall(r"^(    (\w+) : .*\n(?:     .*\n)*)", parameters, re.MULTILINE)
    shared = [entry.format(**words) for entry, name in entries if name in own and f"\n    {name} : " not in doc]
    cls.__doc__ = doc.replace("    ...\n", "".join(shared), 1).replace("    ...\n", attributes, 1)


PARAMETERS = """\
    n_clusters : int, default=8
        How many clusters.
    init : str, array of shape (n_clusters, n_features) or callable, default="k-means++"
        Where the centres start: "k-means++", "k-means||", "afk-mc2", "random" (rows), or where you say. "k-means++" is the
        greedy variant, on a sample of at least max(20000, 50 n_clusters) rows where there are more, with the swaps of a
        local search for up to 256 clusters; `KMeans` goes on from where steps on that sample lead, if it is a quarter of
        the rows or less, has 100 of them for each centre, and they are dense. A callable is called as
        `init(X, n_clusters, random_state=...)`, with a RandomState, and returns an array.
    n_init : "auto" or int, default="auto"
        How many starts to try; the one of least energy is kept. "auto" is 1, but 10 for "random" and callables. An array
        is one start, whatever n_init says.
    max_iter : int, default={max_iter}
        Most steps of one start.
    tol : float, default={tol}
        Stop when the centres' squared moves add up to no more than this fraction of the mean variance of a column.
    time_budget : float or None, default=None
        Seconds from the call of `fit` within which to end, with the best centres so far. Half of the time is for the start:
        a seeding that would take longer considers one candidate per centre, then draws the remaining centres at once, and one
        warning says so. No warning tells of swaps and steps on the sample that are left out, as the steps on all rows do the
        same work, nor of "random" rows that are drawn at once, which are as random as others. No step is begun unless there is
        time for it and for the final labels, and a first step that takes too long is given up: `n_iter_` may be 0. The least
        that a fit takes, whatever the budget: one pass over the rows to check them, half a second for the start, and the
        labels of all rows by `n_clusters` centres, as in `predict`. Kernels that are used for the first time are compiled
        within the budget, which takes some 10 seconds of CPU time once; a callable `init` is not interrupted. Without a budget
        the result does not depend on time.
    metric : {{"euclidean", "cosine"}}, default="euclidean"
        "cosine" clusters directions: rows are scaled to unit length and so are the centres. Energy is then the sum of
        1 - cosine. Rows of zeros have no direction and are refused.
    random_state : int, RandomState, Generator or None, default=None
        Seed of the random numbers: an int gives the same result every time, None another one each time (from NumPy's
        global state, as in scikit-learn). A RandomState or Generator is drawn from once a fit.
    n_threads : int or None, default=None
        Threads to use; None for as many as OpenMP would start: the CPUs that the process may use, of which a worker of
        joblib gets its share, or OMP_NUM_THREADS if that is less. At most 1024. The result does not depend on it.
    callback : callable or None, default=None
        Is given a copy of each record of `history_` as it is made; a true result ends the fit.
    verbose : int, default=0
        Print each record.
"""

ATTRIBUTES = """\
    cluster_centers_, labels_, inertia_, n_iter_, n_features_in_, feature_names_in_
        As in scikit-learn. `labels_` equals `predict(X)`.
    stop_reason_ : str
        Why the kept start ended: "converged", "max_iter", "time_budget" or "callback"; one of the last two also where it
        kept further starts from being tried to their end.
"""
