"""Short binary codes of rows: hashing, packed storage and decoding.

>>> import numpy as np
>>> from shoal import binary
>>> X = np.random.default_rng(0).normal(size=(1000, 50))
>>> code = binary.lsh(X, n_bits=100, random_state=0)
>>> codes = code.encode(X)
>>> codes
Codes of 1000 rows, 100 bits each (16000 bytes)
>>> code.decode(codes)[0, :5]
array([-1, -1, -1,  1, -1], dtype=int8)
"""

from .codes import Codes
from .hashing import itq, lsh
from .linear_code import LinearCode

__all__ = ["Codes", "LinearCode", "itq", "lsh"]
