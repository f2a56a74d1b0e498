"""Clustering quality measures, computed block by block in float64.

Measures against known classes: `accuracy`, `purity` and two of scikit-learn. Measures of a clustering by itself: `energy`,
`simplified_silhouette`, `davies_bouldin`. `knee` chooses a number of clusters from a curve of energies.
"""

import lazy_loader

# Listed in __init__.pyi and imported on first use: sklearn.metrics takes as long as the rest of scikit-learn.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

del lazy_loader
