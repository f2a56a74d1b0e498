"""Common parts of all estimators: base classes, the fit loop, checkpoints and random streams."""
