"""Self-contained HTML reports: `gather` computes the facts of a fitted model, `write_fit` renders them.

`write_compare` reports on several methods, `write_sweep` on several numbers of clusters.

>>> import numpy as np, tempfile
>>> from pathlib import Path
>>> from shoal import KMeans
>>> from shoal.report import gather, write_fit
>>> X = np.random.default_rng(0).normal(size=(500, 3))
>>> facts = gather(KMeans(4, random_state=0).fit(X), X)
>>> facts.n, facts.k, int(facts.sizes.sum())
(500, 4, 500)
>>> with tempfile.TemporaryDirectory() as folder:
...     write_fit(Path(folder) / "report.html", facts)
"""

from .facts import Curve, Facts, Options, Origin, Point, Trial
from .gather import gather
from .page import write_compare, write_fit, write_sweep

__all__ = ["Curve", "Facts", "Options", "Origin", "Point", "Trial", "gather", "write_compare", "write_fit", "write_sweep"]
