"""Settings that all tests share."""

from hypothesis import settings

settings.register_profile("shoal", deadline=None, max_examples=60, derandomize=True, print_blob=True)
settings.load_profile("shoal")
