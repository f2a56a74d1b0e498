"""Exceptions that Shoal raises.

Each one is a subclass of the built-in exception that scikit-learn raises in the same situation, so existing `except
ValueError` and `except TypeError` clauses keep working.
"""

from __future__ import annotations


class ClusterLostError(RuntimeError):
    """Raised when a distributed fit has no workers left that can process its rows.

    Raised by `fit`, `predict` and the other methods that take distributed rows.

    Notes
    -----
    Causes are a closed client, a stopped scheduler, workers that died, and rows that were held only by workers that died.
    Start the workers again, persist the rows again if only workers held them, and repeat the call. A fit inside
    `shoal.Checkpoint` resumes from the checkpoint file, which the message names.
    """


class NotDistributableError(TypeError):
    """Raised when an estimator or an option cannot run on distributed rows.

    Raised by `fit` when it is given distributed rows.

    Notes
    -----
    Use an estimator that supports distributed rows, change the option that the message names, or load the rows on one
    machine.
    """


class InvalidFileError(ValueError):
    """Raised when the rows of a file cannot be read.

    Raised by `shoal.open_rows`, and by every later read of the rows that it returns.

    Notes
    -----
    Causes are files that are truncated, damaged, changed since they were opened, or in an unsupported layout. The message
    names the file, the place in it and the remedy.

    Examples
    --------
    >>> import pathlib, tempfile, shoal
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "rows.csv")
    ...     _ = path.write_text("1,2\\n3,x\\n")
    ...     try:
    ...         shoal.open_rows(path)
    ...     except shoal.exceptions.InvalidFileError as error:
    ...         print(str(error).partition("rows.csv: ")[2].partition(",")[0])
    line 2
    """


class InvalidModelError(ValueError):
    """Raised when a model file or a checkpoint file cannot be used.

    Raised by `shoal.load`, and by a fit inside `shoal.Checkpoint` whose file exists.

    Notes
    -----
    Causes are files that Shoal did not write, that were truncated or changed, or that another version of the format wrote:
    use another copy, or fit again. A checkpoint may also belong to a fit with other rows or parameters: restore the one that
    the message names, or give the new fit another file.
    """


class MemoryLimitError(MemoryError):
    """Raised when a fit would take more memory than allowed.

    Raised by `fit` inside `shoal.MemoryLimit`, and without a limit if the fit would by far exceed the memory of the machine.

    Notes
    -----
    The need is estimated before the fit starts, so nothing has been computed yet. The message recommends a limit and, where
    fewer rows would help, a number of rows. Other remedies are fewer columns, clusters or threads, or another method.

    Examples
    --------
    >>> import numpy as np, shoal
    >>> try:
    ...     with shoal.MemoryLimit("64MB"):
    ...         shoal.KMeans(2).fit(np.zeros((1000, 2)))
    ... except shoal.exceptions.MemoryLimitError as error:
    ...     print(str(error).partition(":")[0])
    A limit of 64 MB is too little
    """


class FitInterrupted(KeyboardInterrupt):
    """Raised by a fit after `shoal.Checkpoint.stop` was called and its state was written.

    Notes
    -----
    Run the same fit with the same checkpoint file to resume it. As a `KeyboardInterrupt`, it is not caught by `except
    Exception`.
    """
