"""Spectral clustering: k-means on the leading eigenvectors of the affinities between rows."""
