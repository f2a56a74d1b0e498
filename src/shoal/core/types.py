"""Names for types that many files share."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Floating = np.float32 | np.float64
