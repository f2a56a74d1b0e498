"""Shares arrive in row order for any executor; threads always end."""

import os
import signal
import threading
import time
import warnings

import joblib
import numpy as np
import pytest
from scipy import sparse
from threadpoolctl import threadpool_info, threadpool_limits

from shoal import KMeans
from shoal.data import rows as rows_module
from shoal.data.frame import Frame
from shoal.data.rows import Rows, rows_in_a_block, working_dtype
from shoal.data.sources import find_source
from shoal.execution import threads as threads_module
from shoal.execution.threads import on_threads, one_blas_thread

X = np.arange(30_000.0).reshape(10_000, 3)


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(rows_module, "BLOCK_ROWS", (100, 100))


def open_rows(X=X, **options):
    n_threads = options.pop("n_threads", None)
    return on_threads(Rows.of(find_source(X), **options), n_threads)


def workers():
    return [thread for thread in threading.enumerate() if thread.name.startswith("shoal")]


def blas_threads():
    """Return the number of threads that BLAS uses."""
    pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas" and "faiss" not in pool["filepath"]]
    return {pool["num_threads"] for pool in pools}


class TestShares:
    @pytest.mark.parametrize("n_threads", [1, 2, 7])
    def test_row_order(self, small_blocks, n_threads):
        def slow_at_first(start, raw):
            time.sleep(0.02 if start == 0 else 0)
            return start, len(raw), raw[0, 0]

        with open_rows(n_threads=n_threads) as rows:
            found = list(rows.map_raw_blocks(slow_at_first))
        assert found == [(start, 100, 3 * start) for start in range(0, 10_000, 100)]

    @pytest.mark.parametrize("n", [1, 99, 100, 101, 250])
    def test_every_row_is_covered_once(self, small_blocks, n):
        with open_rows(X[:n], n_threads=2) as rows:
            found = np.concatenate(list(rows.map_blocks(lambda block: block.X[:, 0].copy())))
        np.testing.assert_array_equal(found, X[:n, 0])

    @pytest.mark.parametrize("n_threads", [1, 3])
    def test_blocks_write_to_their_slices(self, small_blocks, n_threads):
        out = np.zeros(10_000)

        def write(block, out, factor):
            out[:] = factor * block.X[:, 0]

        with open_rows(n_threads=n_threads) as rows:
            for _ in rows.map_blocks(write, 2.0, per_row=(out,)):
                pass
        np.testing.assert_array_equal(out, 2 * X[:, 0])

    def test_several_threads_run(self, small_blocks):
        meeting = threading.Barrier(3, timeout=20)  # passes only if three threads run at the same time

        def meet(start, raw):
            return meeting.wait() >= 0 if start < 300 else True

        with open_rows(n_threads=3) as rows:
            assert all(rows.map_raw_blocks(meet))

    def test_few_shares_are_computed_ahead(self, small_blocks):
        made = []
        with open_rows(n_threads=2) as rows:
            shares = rows.map_raw_blocks(lambda start, raw: made.append(start))
            next(shares)
            time.sleep(0.1)
            assert len(made) <= 6
            shares.close()


class TestThreads:
    @pytest.mark.parametrize("n_threads", [1, 4])
    def test_an_error_reaches_the_caller(self, small_blocks, n_threads):
        def fail(start, raw):
            if start == 500:
                raise KeyError("block 5")
            return start

        seen = []
        with pytest.raises(KeyError, match="block 5"), open_rows(n_threads=n_threads) as rows:
            seen.extend(rows.map_raw_blocks(fail))
        assert not workers()

    def test_threads_end_with_the_context(self, small_blocks):
        with open_rows(n_threads=4) as rows:
            list(rows.map_raw_blocks(lambda start, raw: start))
            assert workers()
        assert not workers()

    def test_threads_end_if_shares_are_not_consumed(self, small_blocks):
        with open_rows(n_threads=4) as rows:
            next(rows.map_raw_blocks(lambda start, raw: start))
        assert not workers()

    @pytest.mark.parametrize("where", ["callback", "init"])
    def test_threads_end_if_a_fit_fails(self, small_blocks, where):
        def fail(*args, **kwargs):
            raise RuntimeError("mine")

        with pytest.raises(RuntimeError, match="mine"):
            KMeans(3, n_threads=4, **{where: fail}).fit(X)
        assert not workers()

    def test_default_n_threads(self):
        with open_rows() as rows, open_rows(n_threads=3) as three:
            assert 1 <= rows.n_threads <= joblib.cpu_count()
            assert three.n_threads == 3

    def test_default_follows_openmp(self):
        """Joblib limits the threads of its workers in this way."""
        with threadpool_limits(1, user_api="openmp"), open_rows() as rows, open_rows(n_threads=3) as three:
            assert rows.n_threads == 1
            assert three.n_threads == 3

    def test_no_threads_outside_the_context(self, small_blocks):
        rows = Rows.of(find_source(X))
        with pytest.raises(RuntimeError, match="with_executor"):
            next(rows.map_raw_blocks(lambda start, raw: start))
        with on_threads(rows, 2) as opened:
            shares = opened.map_raw_blocks(lambda start, raw: start)
            assert next(shares) == 0
        with on_threads(rows, 2) as rows:
            assert len(list(rows.map_raw_blocks(lambda start, raw: start))) == 100
        assert not workers()

    def test_concurrent_predictions(self, small_blocks):
        model = KMeans(5, random_state=0, n_threads=2).fit(X)
        found = {}
        threads = [threading.Thread(target=lambda j=j: found.update({j: model.predict(X)})) for j in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == 6
        for labels in found.values():
            np.testing.assert_array_equal(labels, model.labels_)


class TestBlas:
    def test_one_thread_inside_the_context(self):
        before = blas_threads()
        with one_blas_thread():
            assert blas_threads() == {1}
            with one_blas_thread():
                assert blas_threads() == {1}
            assert blas_threads() == {1}
        assert blas_threads() == before

    def test_limit_is_removed_after_an_error(self):
        before = blas_threads()
        with pytest.raises(ZeroDivisionError), one_blas_thread():
            1 / 0  # noqa: B018
        assert blas_threads() == before

    @pytest.mark.parametrize("n_threads", [1, 3])
    def test_limit_is_removed_while_a_traceback_references_the_shares(self, small_blocks, n_threads):
        before = blas_threads()
        with pytest.raises(KeyboardInterrupt) as caught, open_rows(n_threads=n_threads) as rows:  # noqa: PT012
            shares = rows.map_raw_blocks(lambda start, raw: start)
            for _ in shares:
                assert blas_threads() == {1}
                raise KeyboardInterrupt
        assert caught.traceback
        assert shares.gi_frame is not None  # the generator has not ended
        assert blas_threads() == before
        assert not workers()

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
    def test_no_limit_in_a_forked_child(self):
        before = blas_threads()
        with warnings.catch_warnings(), one_blas_thread(), threads_module._blas_lock:
            warnings.simplefilter("ignore")  # newer Python versions warn of forks in a multithreaded process
            child = os.fork()
            if child == 0:
                found = []
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.alarm(30)  # ends a child that hangs
                try:
                    found = [threads_module._blas_lock.locked(), blas_threads()]
                    if not found[0]:  # otherwise this would block
                        with one_blas_thread():
                            found.append(blas_threads())
                        found.append(blas_threads())
                finally:
                    os._exit(found != [False, before, {1}, before])
            assert os.waitpid(child, 0)[1] == 0


class TestBlockSize:
    @pytest.mark.parametrize("d", [1, 128, 1024])
    def test_blocks_of_narrow_rows(self, d):
        assert rows_in_a_block(d, is_sparse=False) >= 4096

    @pytest.mark.parametrize("d", [2048, 30_000, 100_000])
    def test_blocks_of_wide_rows(self, d):
        assert rows_in_a_block(d, is_sparse=False) >= 64
        assert 4 * d * rows_in_a_block(d, is_sparse=False) <= 1 << 25
        assert rows_in_a_block(d, is_sparse=True) == 4096  # few numbers are stored per sparse row

    def test_block_size_of_wide_rows_affects_rounding_only(self, monkeypatch):
        wide = np.random.default_rng(0).normal(size=(300, 70_000)).astype(np.float32)
        small = KMeans(4, init=wide[:4], max_iter=3, algorithm="lloyd").fit(wide)
        monkeypatch.setattr(rows_module, "MAX_DENSE_BLOCK_NUMBERS", 1 << 40)
        large = KMeans(4, init=wide[:4], max_iter=3, algorithm="lloyd").fit(wide)
        np.testing.assert_array_equal(small.labels_, large.labels_)
        np.testing.assert_allclose(small.cluster_centers_, large.cluster_centers_, atol=1e-6)


class TestFrame:
    @pytest.mark.parametrize("exponent", [-1000, -3, 0, 5, 1000])
    @pytest.mark.parametrize("shift", [None, np.array([1.0, -2.0, 4.0])])
    def test_round_trip(self, exponent, shift):
        rows = np.ldexp(np.random.default_rng(0).integers(-8, 8, (20, 3)).astype(float), -exponent)
        frame = Frame(shift, exponent)
        inside = frame.into(rows, np.dtype(float))
        np.testing.assert_array_equal(inside, np.ldexp(rows, exponent) - (0 if shift is None else shift))
        np.testing.assert_array_equal(frame.out_of(inside, np.dtype(float)), rows)

    @pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int8, np.uint8, bool])
    def test_small_dtypes_work_in_float32(self, dtype):
        assert working_dtype(np.dtype(dtype)) == np.float32

    @pytest.mark.parametrize("dtype", [np.float64, np.int32, np.int64, np.uint32, np.longdouble])
    def test_other_dtypes_work_in_float64(self, dtype):
        assert working_dtype(np.dtype(dtype)) == np.float64


class TestTake:
    @pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
    def test_rows_are_in_the_frame(self, layout):
        with open_rows(layout(X), frame=Frame(exponent=3)) as rows:
            np.testing.assert_array_equal(rows.take(np.array([7, 0, 7])), 8 * X[[7, 0, 7]])


class TestSubset:
    @pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
    @pytest.mark.parametrize(("work", "blocks"), [(1 << 23, 1), (1, 5)])
    def test_rows_and_weights(self, layout, work, blocks, monkeypatch):
        monkeypatch.setattr("shoal.data.rows.SUBSET_BLOCK_MULTIPLICATIONS", work)
        ids, weights = np.array([7, 3, 3, 9999, 0]), np.arange(10_000.0)
        with open_rows(layout(X), weights=weights, n_threads=2) as rows:
            for some in (rows.subset(ids, 3), rows.materialize(ids, 3)):
                shares = list(some.map_blocks(lambda block, w: (len(block), w.sum()), per_row=(some.weights,)))
                np.testing.assert_array_equal(some.take(np.arange(5)), X[ids])
                assert len(some) == sum(n for n, _ in shares) == 5
                assert len(shares) == blocks
                assert sum(w for _, w in shares) == weights[ids].sum()

    def test_subsets_use_the_same_threads(self, monkeypatch):
        monkeypatch.setattr("shoal.data.rows.SUBSET_BLOCK_MULTIPLICATIONS", 1)
        with open_rows(n_threads=2) as rows:
            for _ in range(20):
                assert len(list(rows.subset(np.arange(160), 4).map_blocks(len))) == 16
            assert len(workers()) <= 2
        assert not workers()
