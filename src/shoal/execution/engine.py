"""Choose what processes the rows: threads of this process, or workers of a distributed engine.

The package of an engine is imported only once the user passes an object of it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from functools import wraps
from importlib import import_module
from typing import Any, TypeVar

from ..data.scoped import Scoped
from ..data.source import FileSource
from ..data.types import packages_of
from ..exceptions import NotDistributableError

BACKENDS = {"dask": "shoal.distributed.dask", "distributed": "shoal.distributed.dask"}  # package of a type -> our module for it

UNSPECIFIED = "unspecified"

ENGINE: ContextVar[Any] = ContextVar("engine", default=UNSPECIFIED)  # of the surrounding `with` block


def check_distributable(estimator: Any) -> None:
    """Raise `NotDistributableError` if an estimator requires all rows on one machine."""
    if why := getattr(estimator, "_not_distributable_because", None):
        raise NotDistributableError(f"{type(estimator).__name__} works on one machine alone, for {why}.")


def backend_for(obj: Any) -> Any:
    """Return the module that handles clients and collections of the package of an object; None if there is none."""
    name = next((BACKENDS[package] for package in packages_of(obj) if package in BACKENDS), None)
    return None if name is None else import_module(name)


class Engine(Scoped):
    """Use distributed workers for fits and predictions in a `with` block.

    Parameters
    ----------
    client : dask.distributed.Client or None
        Client whose workers to use, for files (`open_rows`), which workers must be able to read under the same path, and for
        dask arrays and dataframes, which use the current client by default. None for threads of this process, also for dask
        collections.

    Notes
    -----
    Results are bitwise identical to those of threads: partitions depend on the number of rows (those of a dask collection on
    its chunks), not on the number of workers. Rows in memory are always processed by threads.

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
    if not isinstance(X, FileSource) and backend_for(X) is None:
        raise TypeError(
            f"engine={engine!r} is for rows that its workers can read, but X is a {type(X).__name__} of this process: give a "
            "dask array, a dask dataframe or open_rows(path), or leave engine out."
        )
    return Engine(engine).client


def resolve_source(X: Any, engine: Any) -> Any:
    """Return a source for rows that workers of the engine read; X itself otherwise. Resolving twice changes nothing."""
    if isinstance(X, FileSource):
        return X if X.is_distributed or engine in (None, UNSPECIFIED) else backend_for(engine).open_files(X, engine)
    backend = backend_for(X)
    return X if backend is None else backend.open_collection(X, engine if engine != UNSPECIFIED else backend.current_client())


Method = TypeVar("Method", bound=Callable[..., Any])


def lazy_on_dask(method: Method) -> Method:
    """Make a method of a fitted model return a lazy dask collection if it is given a dask collection."""

    @wraps(method)
    def call(self: Any, X: Any) -> Any:
        backend = backend_for(X)
        return method(self, X) if backend is None else backend.map_method(self, method.__name__, X)

    return call  # type: ignore[return-value]
