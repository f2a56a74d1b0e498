"""What a user sets for the length of a `with` block."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextvars import ContextVar, Token
from typing import Any, ClassVar, Self

ENTERED: ContextVar[tuple[tuple[Scoped, Token[Any]], ...]] = ContextVar("entered", default=())  # by this thread


class Scoped(ABC):
    """Sets a variable for a `with` block. It may be entered again before it is left, and by several threads at once."""

    _variable: ClassVar[ContextVar[Any]]

    @abstractmethod
    def _setting(self) -> Any:
        """The value in the block."""

    def __enter__(self) -> Self:
        ENTERED.set((*ENTERED.get(), (self, self._variable.set(self._setting()))))
        return self

    def __exit__(self, kind: type[BaseException] | None = None, *_: object) -> None:
        entered = ENTERED.get()
        last = max(i for i, (scope, _) in enumerate(entered) if scope is self)
        ENTERED.set(entered[:last] + entered[last + 1 :])
        self._variable.reset(entered[last][1])
