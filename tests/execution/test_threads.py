"""Shares of blocks are added up to partitions, and these to the total, for any executor."""

from typing import NamedTuple

import numpy as np
import pytest
from scipy import sparse

from shoal.data import rows as rows_module
from shoal.data.blocks import DenseBlock, SparseBlock
from shoal.data.jobs import Span, folded
from shoal.data.rows import Rows
from shoal.data.sources import find_source
from shoal.execution.threads import on_threads
from tests.strategies import blobs

X, labels = blobs(950, 7, 6)


class Path(NamedTuple):
    """Share that records the blocks it is the sum of, in their order."""

    seen: tuple

    def plus(self, other):
        return Path((*self.seen, *other.seen))


def path_block(start, raw):
    return Path(((start, len(raw)),))


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(rows_module, "BLOCK_ROWS", (100, 100))
    monkeypatch.setattr(rows_module, "BLOCKS_PER_PARTITION", 4)


@pytest.mark.parametrize("n_threads", [1, 3])
def test_shares_with_plus_are_yielded_per_partition(small, n_threads):
    with on_threads(Rows.of(find_source(X)), n_threads) as rows:
        found = list(rows.map_raw_blocks(path_block))
    starts = [[start for start, _ in path.seen] for path in found]
    assert starts == [[0, 100, 200, 300], [400, 500, 600, 700], [800, 900]]
    assert found[-1].seen[-1] == (900, 50)


@pytest.mark.parametrize("n_threads", [1, 3])
def test_shares_without_plus_are_yielded_per_block(small, n_threads):
    with on_threads(Rows.of(find_source(X)), n_threads) as rows:
        assert list(rows.map_raw_blocks(lambda start, raw: start)) == rows.starts == list(range(0, 950, 100))


def test_empty_spans():
    assert list(folded([])) == []
    assert Span(5, 5, 2).blocks() == []


@pytest.mark.parametrize("kind", [DenseBlock, lambda rows: SparseBlock(sparse.csr_array(rows))], ids=["dense", "sparse"])
@pytest.mark.parametrize("recompute", [True, False])
def test_sum_deltas_add_up(kind, recompute):
    old, k = np.roll(labels, 3).astype(np.int32), 9  # some clusters have no rows, and some blocks not all of them
    one_by_one, together = ([np.zeros((k, X.shape[1])), np.zeros(k), np.zeros(k), np.zeros(k, np.int64)] for _ in range(2))
    total = None
    for a in (0, 5, 8, 300):
        here = slice(a, a + 3 if a < 300 else None)
        weights = np.ones(len(X[here]))
        new = labels[here].astype(np.int32)
        share = kind(X[here]).moves(weights, old[here], new, k, recompute)
        share.add_to(*one_by_one)
        total = share if total is None else total.plus(share)
    total.add_to(*together)
    assert total.moved == sum(np.count_nonzero(old[a:b] != labels[a:b]) for a, b in ((0, 3), (5, 8), (8, 11), (300, None)))
    for expected, found in zip(one_by_one, together, strict=True):
        np.testing.assert_array_equal(found, expected)
