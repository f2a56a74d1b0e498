"""The papers behind Shoal's methods: their algorithms exactly as printed, their experiments and their claims.

`compressed_kmeans`, `minibatch_spectral` and `variance_reduced_kmeans` hold algorithms, as functions of arrays. `convergence`,
`nested`, `variance`, `compressed` and `spectral` hold the experiments of one paper each, with its claims and published values
as data.
"""
