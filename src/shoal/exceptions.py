"""Exceptions that Shoal raises."""

from __future__ import annotations


class ClusterLostError(RuntimeError):
    """There is nobody left to work on the rows."""


class NotDistributableError(TypeError):
    """A method that workers elsewhere can't help with."""


class InvalidFileError(ValueError):
    """Rows that can't be read: one sentence names the file, the place and the way out."""


class InvalidModelError(ValueError):
    """A model or a checkpoint that is not what was once written, or not for this fit."""


class FitInterrupted(KeyboardInterrupt):
    """The fit was asked to stop; its state is in the file."""
