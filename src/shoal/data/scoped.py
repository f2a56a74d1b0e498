"""Settings that apply within a `with` block."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextvars import ContextVar, Token
from typing import Any, ClassVar, Self

# Scopes that the current thread has entered and not left, with the tokens that restore the previous values.
ENTERED: ContextVar[tuple[tuple[Scoped, Token[Any]], ...]] = ContextVar("entered", default=())


class Scoped(ABC):
    """Base class of context managers that set a context variable. They are reentrant and thread-safe."""

    _variable: ClassVar[ContextVar[Any]]

    @abstractmethod
    def _setting(self) -> Any:
        """Return the value of the variable within the block."""

    def __enter__(self) -> Self:
        ENTERED.set((*ENTERED.get(), (self, self._variable.set(self._setting()))))
        return self

    def __exit__(self, kind: type[BaseException] | None = None, *_: object) -> None:
        entered = ENTERED.get()
        last = max(i for i, (scope, _) in enumerate(entered) if scope is self)
        ENTERED.set(entered[:last] + entered[last + 1 :])
        self._variable.reset(entered[last][1])
