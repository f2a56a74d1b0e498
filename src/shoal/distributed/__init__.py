"""The same methods on workers elsewhere. The only room that imports dask."""
