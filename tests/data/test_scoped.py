"""`Scoped`: a `with` block restores the earlier value at its end, even if it is nested or used by several threads."""

import threading

import pytest

import shoal
from shoal.execution.engine import ENGINE
from shoal.execution.memory_limit import MEMORY_LIMIT
from shoal.fit.checkpoint import CHECKPOINT_STORE

SCOPES = pytest.mark.parametrize(
    ("make", "variable"),
    [
        (lambda folder: shoal.Checkpoint(folder / "checkpoint.npz"), CHECKPOINT_STORE),
        (lambda folder: shoal.Engine(None), ENGINE),
        (lambda folder: shoal.MemoryLimit("1GB"), MEMORY_LIMIT),
    ],
    ids=["checkpoint", "engine", "limit"],
)


@SCOPES
def test_nested(make, variable, tmp_path):
    before, scope = variable.get(), make(tmp_path)
    with scope:
        inside = variable.get()
        with scope:
            assert variable.get() == inside
        assert variable.get() == inside
    assert variable.get() == before


@SCOPES
def test_several_threads(make, variable, tmp_path):
    before, scope, together, left = variable.get(), make(tmp_path), threading.Barrier(3, timeout=30), []

    def use():
        with scope:
            together.wait()
        left.append(variable.get())

    threads = [threading.Thread(target=use) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert left == [before] * 3


def test_exit_in_another_order():
    engine, limit = shoal.Engine(None), shoal.MemoryLimit("1GB")
    before = ENGINE.get(), MEMORY_LIMIT.get()
    engine.__enter__()
    limit.__enter__()
    engine.__exit__()
    assert (ENGINE.get(), MEMORY_LIMIT.get()) == (before[0], 1e9)
    limit.__exit__()
    assert (ENGINE.get(), MEMORY_LIMIT.get()) == before
