"""Settings shared by all tests."""

import os

# Threads of OpenBLAS and OpenMP spin after each call; those of two test processes would take the CPU from each other.
# Both are read when the libraries are loaded, also in child processes.
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")  # binary logarithm of the number of cycles before idle threads sleep
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import tempfile

from hypothesis import settings

MAX_EXAMPLES = 30 * int(os.environ.get("SHOAL_TIMES", "1"))
settings.register_profile("shoal", deadline=None, max_examples=MAX_EXAMPLES, derandomize=True, print_blob=True)
settings.load_profile("shoal")

# Folder for the key that signs run.json, so that tests and their child processes do not use the key of the user.
STATE = tempfile.TemporaryDirectory(prefix="shoal-state-")
os.environ["XDG_STATE_HOME"] = STATE.name
