"""What all spectral estimators take and give, in words: documented once."""

PARAMETERS = """\
    n_clusters : int, default=8
        How many clusters, and how many eigenvectors.
    affinity : {{"rbf", "rbf-norm", "self-tuning", "knn", "precomputed"}}, default="rbf"
        How alike two rows are. "rbf" is exp(-|x - y|^2 / sigma^2); "rbf-norm" is exp(-|x - y| / sigma^2), as the paper prints
        it; "self-tuning" is exp(-|x - y|^2 / (s_x s_y)) with s the distance from a row's nearest neighbour number
        `n_neighbors`; "knn" joins each row with its `n_neighbors` nearest. A row is not like itself. "precomputed": X holds
        the affinities, dense or sparse, symmetric and not negative, and new rows hold theirs to the rows of the fit.
    sigma : float or None, default=None
        The scale of "rbf" and "rbf-norm". None for how far the nearer half of a row's cluster reaches, if clusters are of
        one size: the median over a sample. Clusters that are no clouds, such as rings, need a smaller one.
    n_neighbors : int or None, default=None
        Of "knn" (None is 10) and "self-tuning" (None is 7).
    neighbors : {{"exact", "pynndescent"}}, default="exact"
        How "knn" finds them: by all distances, in blocks, or by the package pynndescent, which misses a few (dense rows only).
    degree_samples : int or None, default=None
        From how many random columns to estimate the degrees (the sums of the affinities' rows). None to compute them all,
        which looks at every pair of rows once, as is always done where affinities are stored. `degree_error_` says how far
        off they are. New rows have exact ones: where those of the fit are far off, rows that are alike may part.
    store : bool or "auto", default={store}
        Keep all affinities in memory, n_samples x n_samples of them, rather than compute columns whenever they are needed;
        "auto" does so where they take up to a gigabyte.
        A graph ("knn", "precomputed") is in memory already, and stays sparse if it is.
    normalize : bool, default=False
        Scale the rows of the embedding to unit length before k-means (Ng, Jordan and Weiss).
    n_init : int, default=10
        How many starts of k-means to try.
    max_iter : int, default={max_iter}
        Most steps.
    tol : float, default={tol}
        Stop when the subspace changes by less in a step (see `history_`).
    time_budget : float or None, default=None
        Seconds from the call of `fit` within which to end. Steps get three quarters of what the degrees leave, k-means the
        rest. The least that a fit takes, whatever the budget: the affinities and degrees, the start or, without one, a first
        step, and one start of k-means.
    random_state : int, RandomState, Generator or None, default=None
        Seed of the random numbers: an int gives the same result every time.
    n_threads : int or None, default=None
        Threads to use; None for as many as OpenMP would start. The result does not depend on it.
    callback : callable or None, default=None
        Is given a copy of each record of `history_` as it is made; a true result ends the fit.
    verbose : int, default=0
        Print each record.
"""

ATTRIBUTES = """\
    labels_, n_features_in_, feature_names_in_
        As in scikit-learn. `labels_` equals `predict(X)`, unless the affinity is precomputed.
    embedding_ : array of shape (n_samples, n_clusters)
        The eigenvectors, a column each.
    eigenvalues_ : array of shape (n_clusters,)
        Theirs, of D^-1/2 A D^-1/2, the largest first; above 1 only where they, or the degrees, are estimated.
    kmeans_ : KMeans
        That of the embedding.
    sigma_ : float or None
        What was used; None where each row has its own, or none.
    history_ : list of dict
        One record a step: step, seconds, objective (-1/2 Tr(W' L W), or an estimate of it), change (of the subspace: root
        mean square of the sines of the angles between it and the last one), columns (of the affinity that were used), flops
        (additions and multiplications, by the paper's formulas, given the affinities).
    n_iter_ : int
        How many steps.
    stop_reason_ : str
        "converged", "max_iter", "time_budget" or "callback".
    extension_ : Extension
        What `predict` needs of the fit. Unless there are landmarks or a sample to compare new rows with, it refers to X, which
        is not copied and must not be changed.
"""
