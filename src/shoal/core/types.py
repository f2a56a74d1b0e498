"""Names for types that many files share."""

from typing import Any

from numpy.typing import NDArray
from scipy import sparse

Array = NDArray[Any]


def is_sparse(X: Any) -> bool:
    """Is it a SciPy sparse matrix? A plain bool: SciPy's own test narrows the type to one that has no data."""
    return bool(sparse.issparse(X))
