"""The five papers behind Shoal's methods, a package each: algorithms exactly as printed, experiments and claims.

`convergence`, `nested`, `variance`, `compressed` and `spectral` export the algorithms as functions of arrays, with the letters
and equation numbers of the papers. The submodule `experiments` of each has the experiments of the paper, with its claims and
published values as data.

Examples
--------
>>> import numpy as np
>>> from shoal.papers import nested
>>> X = np.random.default_rng(0).normal(size=(1000, 3))
>>> nested.nmbatch(X, 5, rho=100, b=100).c.shape
(5, 3)
"""
