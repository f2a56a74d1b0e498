"""Blocks in row order, whoever works on them; threads that end, whatever happens."""

import threading
import time

import numpy as np
import pytest
from scipy import sparse
from threadpoolctl import threadpool_info

from shoal import KMeans
from shoal.core import rows as rows_module
from shoal.core.rows import Frame, Rows, one_blas_thread, working_dtype
from shoal.core.sources import find_source

X = np.arange(30_000.0).reshape(10_000, 3)


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(rows_module, "BLOCK_ROWS", (100, 100))


def open_rows(X=X, **options):
    return Rows(find_source(X), **options)


def workers():
    return [thread for thread in threading.enumerate() if thread.name.startswith("shoal")]


def blas_threads():
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


class TestShares:
    @pytest.mark.parametrize("n_threads", [1, 2, 7])
    def test_come_in_row_order(self, small_blocks, n_threads):
        def slow_at_first(start, raw):
            time.sleep(0.02 if start == 0 else 0)
            return start, len(raw), raw[0, 0]

        with open_rows(n_threads=n_threads) as rows:
            found = list(rows.raw_shares(slow_at_first))
        assert found == [(start, 100, 3 * start) for start in range(0, 10_000, 100)]

    @pytest.mark.parametrize("n", [1, 99, 100, 101, 250])
    def test_cover_every_row_once(self, small_blocks, n):
        with open_rows(X[:n], n_threads=2) as rows:
            found = np.concatenate(list(rows.shares(lambda block: block.X[:, 0].copy())))
        np.testing.assert_array_equal(found, X[:n, 0])

    @pytest.mark.parametrize("n_threads", [1, 3])
    def test_write_to_their_slices(self, small_blocks, n_threads):
        out = np.zeros(10_000)

        def write(block, out, factor):
            out[:] = factor * block.X[:, 0]

        with open_rows(n_threads=n_threads) as rows:
            for _ in rows.shares(write, 2.0, per_row=(out,)):
                pass
        np.testing.assert_array_equal(out, 2 * X[:, 0])

    def test_are_made_by_several_threads(self, small_blocks):
        meeting = threading.Barrier(3, timeout=20)  # opens only when three are at work at once

        def meet(start, raw):
            return meeting.wait() >= 0 if start < 300 else True

        with open_rows(n_threads=3) as rows:
            assert all(rows.raw_shares(meet))

    def test_are_not_made_long_before_they_are_wanted(self, small_blocks):
        made = []
        with open_rows(n_threads=2) as rows:
            shares = rows.raw_shares(lambda start, raw: made.append(start))
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
            seen.extend(rows.raw_shares(fail))
        assert not workers()

    def test_end_with_the_context(self, small_blocks):
        with open_rows(n_threads=4) as rows:
            list(rows.raw_shares(lambda start, raw: start))
            assert workers()
        assert not workers()

    def test_end_when_shares_are_left_lying(self, small_blocks):
        with open_rows(n_threads=4) as rows:
            next(rows.raw_shares(lambda start, raw: start))
        assert not workers()

    @pytest.mark.parametrize("where", ["callback", "init"])
    def test_end_when_a_fit_fails(self, small_blocks, where):
        def fail(*args, **kwargs):
            raise RuntimeError("mine")

        with pytest.raises(RuntimeError, match="mine"):
            KMeans(3, n_threads=4, **{where: fail}).fit(X)
        assert not workers()

    def test_n_threads_defaults_to_the_cores_at_hand(self):
        assert open_rows().n_threads >= 1
        assert open_rows(n_threads=3).n_threads == 3

    def test_models_may_predict_side_by_side(self, small_blocks):
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
    def test_has_one_thread_inside_and_its_own_after(self):
        before = blas_threads()
        with one_blas_thread():
            assert blas_threads() == {1}
            with one_blas_thread():
                assert blas_threads() == {1}
            assert blas_threads() == {1}
        assert blas_threads() == before

    def test_is_given_back_after_an_error(self):
        before = blas_threads()
        with pytest.raises(ZeroDivisionError), one_blas_thread():
            1 / 0  # noqa: B018
        assert blas_threads() == before


class TestFrame:
    @pytest.mark.parametrize("exponent", [-1000, -3, 0, 5, 1000])
    @pytest.mark.parametrize("shift", [None, np.array([1.0, -2.0, 4.0])])
    def test_there_and_back(self, exponent, shift):
        rows = np.ldexp(np.random.default_rng(0).integers(-8, 8, (20, 3)).astype(float), -exponent)
        frame = Frame(shift, exponent)
        inside = frame.into(rows, np.dtype(float))
        np.testing.assert_array_equal(inside, np.ldexp(rows, exponent) - (0 if shift is None else shift))
        np.testing.assert_array_equal(frame.out_of(inside, np.dtype(float)), rows)

    @pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int8, np.uint8, bool])
    def test_small_dtypes_work_in_float32(self, dtype):
        assert working_dtype(np.dtype(dtype)) == np.float32

    @pytest.mark.parametrize("dtype", [np.float64, np.int32, np.int64, np.uint32, np.longdouble])
    def test_the_others_in_float64(self, dtype):
        assert working_dtype(np.dtype(dtype)) == np.float64


class TestTake:
    @pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
    def test_gives_rows_in_the_frame(self, layout):
        with open_rows(layout(X), frame=Frame(exponent=3)) as rows:
            np.testing.assert_array_equal(rows.take(np.array([7, 0, 7])), 8 * X[[7, 0, 7]])
