"""Spectral clustering: rows are clustered by the leading eigenvectors of their affinities."""

from .variance import gradient_variance

__all__ = ["gradient_variance"]
