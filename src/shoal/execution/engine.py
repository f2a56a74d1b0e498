"""Who works on the rows, where the user has a say: threads of this process, or workers that a package for such things knows.

No such package is imported before a user brings something of its kind.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from functools import wraps
from importlib import import_module
from typing import Any, TypeVar

from ..data.scoped import Scoped
from ..data.source import DistributedSource, FileSource
from ..data.types import packages_of
from ..exceptions import NotDistributableError

BACKENDS = {"dask": "shoal.distributed.dask", "distributed": "shoal.distributed.dask"}  # by the package that a type comes from

UNSPECIFIED = "unsaid"

ENGINE: ContextVar[Any] = ContextVar("engine", default=UNSPECIFIED)  # of the fits that are about to begin


def check_distributable(estimator: Any) -> None:
    """Can workers elsewhere do what it does?"""
    if why := getattr(estimator, "_not_distributable_because", None):
        raise NotDistributableError(f"{type(estimator).__name__} works on one machine alone, for {why}.")


def backend_for(thing: Any) -> Any:
    """The module that knows things of this kind, or None."""
    name = next((BACKENDS[package] for package in packages_of(thing) if package in BACKENDS), None)
    return None if name is None else import_module(name)


class Engine(Scoped):
    """Let workers elsewhere do the work of fits and predictions in a `with` block.

    Parameters
    ----------
    client : dask.distributed.Client or None
        Whose workers to use: for files (`open_rows`), which workers must find under the same path, and for dask arrays and
        dataframes, for which the current client is the default. None: threads of this process, for dask collections too.

    Notes
    -----
    Estimators do not change, and their results do not, to the last bit: partitions are fixed by the number of rows (those of a
    dask collection by its own chunks), never by the number of workers. Rows in memory are worked on by threads, as ever.

    Examples
    --------
    >>> import numpy as np, shoal
    >>> X = np.random.default_rng(0).normal(size=(1000, 2))
    >>> with shoal.Engine(None):
    ...     model = shoal.KMeans(n_clusters=3, random_state=0).fit(X)
    """

    _variable = ENGINE

    def __init__(self, client: Any) -> None:
        if client is not None and not hasattr(backend_for(client), "check_client"):
            raise TypeError(f"engine={client!r} is no dask.distributed.Client: give one, or None for threads of this process.")
        self.client = client if client is None else backend_for(client).check_client(client)

    def _setting(self) -> Any:
        return self.client


def resolve_engine(engine: Any, X: Any) -> Any:
    """Return the argument `engine` of a fit to X, validated; if it is None, the engine of the surrounding `with` block."""
    if engine is None:
        return ENGINE.get()
    if not isinstance(X, DistributedSource | FileSource) and backend_for(X) is None:
        raise TypeError(
            f"engine={engine!r} is for rows that its workers can reach, but X is a {type(X).__name__} of this process: give a "
            "dask array, a dask dataframe or open_rows(path), or leave engine out."
        )
    return Engine(engine).client


def resolve_source(X: Any, engine: Any) -> Any:
    """Return a source for rows that workers of the engine read; X itself otherwise. Resolving twice changes nothing."""
    if isinstance(X, DistributedSource):
        return X
    if isinstance(X, FileSource):
        return X if engine in (None, UNSPECIFIED) else backend_for(engine).open_files(X, engine)
    room = backend_for(X)
    return X if room is None else room.open_collection(X, engine if engine != UNSPECIFIED else room.current_client())


Method = TypeVar("Method", bound=Callable[..., Any])


def lazy_on_dask(method: Method) -> Method:
    """A method of a fitted model that, of a collection that workers hold, gives another such one: nothing is done yet."""

    @wraps(method)
    def call(self: Any, X: Any) -> Any:
        room = None if isinstance(X, FileSource) else backend_for(X)
        return method(self, X) if room is None else room.map_method(self, method.__name__, X)

    return call  # type: ignore[return-value]
