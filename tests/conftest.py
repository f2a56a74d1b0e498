"""Settings shared by all tests."""

import os
import tempfile

from hypothesis import settings

settings.register_profile("shoal", deadline=None, max_examples=60, derandomize=True, print_blob=True)
settings.load_profile("shoal")

# Folder for the key that signs run.json, so that tests and their child processes do not use the key of the user.
STATE = tempfile.TemporaryDirectory(prefix="shoal-state-")
os.environ["XDG_STATE_HOME"] = STATE.name
