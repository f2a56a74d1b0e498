"""Fits and predictions on the workers of a Dask cluster. The only subpackage that imports dask."""
