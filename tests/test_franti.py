"""Published data sets with a known lowest sum of squares, which ten initializations must find.

P. Franti, S. Sieranoja (2018), K-means properties on six clustering benchmark datasets, doi:10.1007/s10489-018-1238-7.
"""

import os
from pathlib import Path

import numpy as np
import pytest

from shoal import KMeans
from tests import naive

FOLDER = Path(os.environ.get("SHOAL_DATA", Path(__file__).parents[2] / "shared" / "data")) / "franti"
BEST = {  # number of clusters, sum of squares after Lloyd's algorithm from the published centroids
    "s1": (15, 8.91765e12),
    "s2": (15, 1.32793e13),
    "s3": (15, 1.68896e13),
    "s4": (15, 1.57056e13),
    "a1": (20, 1.21463e10),
    "unbalance": (8, 2.14492e11),
    "dim032": (16, 232535.1),
}


def load(name):
    path = FOLDER / f"{name}.npz"
    if not path.exists():
        pytest.skip(
            f"{path} is not there: point SHOAL_DATA at a folder with franti/{name}.npz, an array X of the set "
            f"'{name}' from https://cs.joensuu.fi/sipu/datasets/"
        )
    with np.load(path, allow_pickle=False) as arrays:
        return arrays["X"]


@pytest.mark.parametrize("name", BEST)
def test_ten_initializations_find_the_lowest_sum_of_squares(name):
    X, (k, best) = load(name), BEST[name]
    model = KMeans(k, n_init=10, random_state=0).fit(X)
    assert model.inertia_ == pytest.approx(naive.energy(X, model.cluster_centers_), rel=1e-9)
    assert model.inertia_ == pytest.approx(best, rel=1e-3)
