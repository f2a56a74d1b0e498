"""Import scikit-learn without two large packages, which it loads for functions that Shoal does not call.

Every part of scikit-learn imports `sklearn.utils.fixes`, which imports `scipy.stats` and, if it is installed, pandas: a third
of the time from the start of a process to the end of its first fit. Stand-ins take their place while that module is imported.
A stand-in loads the package when one of its attributes is used. Nothing is deferred that has been imported before.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import find_spec
from types import ModuleType
from typing import Any

IMPORTER, DEFERRED = "sklearn.utils.fixes", ("pandas", "scipy.stats")


class StandIn(ModuleType):
    """A module that imports the one it stands in for when an attribute is used."""

    def __getattr__(self, name: str) -> Any:
        self.withdraw()
        return getattr(import_module(self.__name__), name)

    def withdraw(self) -> None:
        """Let imports find the real module."""
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]


@contextmanager
def deferred(names: Sequence[str]) -> Iterator[None]:
    """Defer imports of these packages within a `with` block. Other imports there work as well, but load what they need."""
    stand_ins = [StandIn(name) for name in names if name not in sys.modules and find_spec(name)]
    for one in stand_ins:
        sys.modules.setdefault(one.__name__, one)  # another thread may have started to import it
    try:
        yield
    finally:
        for one in stand_ins:
            one.withdraw()


class _Loader(SourceFileLoader):
    """Loader that defers imports of the module that it executes."""

    def exec_module(self, module: ModuleType) -> None:
        with deferred(DEFERRED):
            super().exec_module(module)


class _Finder:
    """Finder of one module. Not derived from `importlib.abc.MetaPathFinder`, whose import takes long in Python 3.11."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != IMPORTER:
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(name, path)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


def install() -> None:
    """Prepare the import of scikit-learn, which may never happen."""
    if IMPORTER not in sys.modules:
        sys.meta_path.insert(0, _Finder())
