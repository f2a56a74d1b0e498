"""k-means: one method, one file."""
