"""Settings that all tests share."""

import os
import tempfile

from hypothesis import settings

settings.register_profile("shoal", deadline=None, max_examples=60, derandomize=True, print_blob=True)
settings.load_profile("shoal")

STATE = tempfile.TemporaryDirectory(prefix="shoal-state-")  # for the key that signs notes, of this process and its children
os.environ["XDG_STATE_HOME"] = STATE.name
