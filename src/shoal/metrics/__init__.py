"""Clustering quality measures, computed block by block in float64.

Measures against known classes: `accuracy`, `purity` and two of scikit-learn. Measures of a clustering by itself: `energy`,
`simplified_silhouette`, `davies_bouldin`. `knee` chooses a number of clusters from a curve of energies.
"""

from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from .elbow import knee
from .external import accuracy, purity
from .internal import davies_bouldin, energy, simplified_silhouette

__all__ = [
    "accuracy",
    "adjusted_rand_score",
    "davies_bouldin",
    "energy",
    "knee",
    "normalized_mutual_info_score",
    "purity",
    "simplified_silhouette",
]
