"""`Codes` and `LinearCode`: packing, and bits that equal the signs of float64 sums for every layout."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from shoal import KMeans, binary
from shoal.binary import Codes, LinearCode
from tests import naive
from tests.strategies import blobs, cloud

MAKERS = pytest.mark.parametrize("make", [binary.lsh, binary.itq], ids=["lsh", "itq"])
WIDTHS = pytest.mark.parametrize("r", [1, 7, 8, 63, 64, 65, 128, 200])


def bits(n=50, r=70, seed=0):
    return np.random.default_rng(seed).random((n, r)) < 0.5


class TestPacking:
    @given(st.integers(1, 40), st.integers(1, 200), st.integers(0, 2**32 - 1))
    def test_round_trip(self, n, r, seed):
        B = bits(n, r, seed)
        codes = Codes.pack(B)
        np.testing.assert_array_equal(np.asarray(codes), B)
        assert codes.shape == (n, r)
        np.testing.assert_array_equal(codes.words, naive.pack(B))

    def test_numbers_above_zero_are_ones(self):
        np.testing.assert_array_equal(np.asarray(Codes.pack([[-1, 1, 0, 0.5]])), [[False, True, False, True]])

    def test_indexing_selects_rows(self):
        B = bits()
        for rows in (slice(3, 9), [4, 4, 0], B[:, 0]):
            np.testing.assert_array_equal(np.asarray(Codes.pack(B)[rows]), B[rows])

    def test_words_are_not_copied(self, tmp_path):
        path = tmp_path / "words"
        Codes.pack(bits(100, 128)).words.tofile(path)
        words = np.memmap(path, np.uint64, "r", shape=(100, 2))
        codes = Codes(words)
        assert codes.is_map
        assert np.shares_memory(codes.words, words)
        assert codes.n_bits == 128

    @pytest.mark.parametrize(
        ("words", "n_bits", "message"),
        [
            (np.zeros((3, 2), np.int64), None, "words must be a 2-D uint64 array.*int64"),
            (np.zeros(3, np.uint64), None, r"words must be .* shape \(3,\)"),
            (np.zeros((0, 2), np.uint64), None, r"words must be .* shape \(0, 2\)"),
            (np.zeros((3, 2), np.uint64), 64, "n_bits=64 fill 1 words per row, but words has 2 columns"),
            (np.zeros((3, 2), np.uint64), 0, "n_bits"),
            (np.zeros((3, 2), np.uint64), 65.0, "n_bits"),
            (np.array([[0], [1], [16]], np.uint64), 4, r"words\[2\] has bits set beyond n_bits=4"),
        ],
    )
    def test_invalid_words(self, words, n_bits, message):
        with pytest.raises(ValueError, match=message):
            Codes(words, n_bits)

    @pytest.mark.parametrize("rows", [np.zeros(3), np.zeros((2, 0)), [["a"]]])
    def test_invalid_rows(self, rows):
        with pytest.raises(ValueError, match="rows must be a 2-D array of bool"):
            Codes.pack(rows)

    def test_other_estimators_accept_codes(self):
        B = bits(60, 70)
        one, other = (KMeans(3, random_state=0).fit(X) for X in (Codes.pack(B), B))
        np.testing.assert_array_equal(one.cluster_centers_, other.cluster_centers_)

    def test_conversion_to_an_array_needs_a_copy(self):
        with pytest.raises(ValueError, match="without a copy"):
            np.asarray(Codes.pack(bits()), copy=False)


class TestEncoding:
    @MAKERS
    @WIDTHS
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_bits_are_signs(self, make, r, dtype):
        X = cloud(300, 20, dtype=dtype) + dtype(3)
        code = make(X, r, random_state=0)
        codes = code.encode(X)
        assert (codes.shape, code.n_bits, code.W.dtype) == ((300, r), r, np.float32)
        S = (X - code.mean) @ code.W.astype(float)
        is_clear = np.abs(S) > 1e-9
        np.testing.assert_array_equal(np.asarray(codes)[is_clear], (S > 0)[is_clear])
        np.testing.assert_array_equal(code.decode(codes), np.where(np.asarray(codes), 1, -1))

    @pytest.mark.parametrize("offset", [0.0, 1e4])
    def test_float64_sums_decide_unclear_bits(self, offset):
        """Rows on the hyperplanes, up to rounding."""
        rng = np.random.default_rng(0)
        X = (rng.normal(size=(400, 30)) + offset).astype(np.float32)
        W = rng.normal(size=(30, 70)).astype(np.float32)
        W[:, :40] -= (X[0] - offset)[:, None] * ((X[0] - offset) @ W[:, :40]) / ((X[0] - offset) ** 2).sum()
        code = LinearCode(np.full(30, offset), W)
        X = np.concatenate([X, X[:1] * np.float32(1 + 1e-7), np.full((1, 30), offset, np.float32)])
        np.testing.assert_array_equal(np.asarray(code.encode(X)), naive.signs(X, code.mean, W))

    @MAKERS
    def test_codes_do_not_depend_on_layout_other_rows_or_threads(self, make):
        X = np.random.default_rng(0).poisson(0.3, (20_000, 40)).astype(np.float32)
        code = make(X, 70, random_state=0)
        words = code.encode(X, n_threads=1).words
        for other in (X.astype(np.uint8), sparse.csr_array(X), sparse.coo_array(X.astype(float)), np.asfortranarray(X)):
            np.testing.assert_array_equal(code.encode(other, n_threads=3).words, words)
        for i in range(20):
            np.testing.assert_array_equal(code.encode(X[i : i + 1]).words, words[i : i + 1])

    @MAKERS
    def test_dense_and_sparse_rows_make_the_same_code(self, make):
        X = np.random.default_rng(0).poisson(0.3, (500, 40)).astype(np.float32)
        dense, sparse_ = (make(layout(X), 16, random_state=0) for layout in (np.asarray, sparse.csr_array))
        np.testing.assert_allclose(dense.mean, sparse_.mean, rtol=1e-12)
        np.testing.assert_allclose(dense.W, sparse_.W, atol=1e-4)

    @MAKERS
    @pytest.mark.parametrize("scale", [1e-200, 1e-40, 1e30, 1e200])
    def test_bits_do_not_depend_on_scale(self, make, scale):
        X = cloud(200, 9)
        dtype = np.float64 if not 1e-45 < scale < 1e38 else np.float32
        X = X.astype(dtype).astype(float)
        power = 2.0 ** np.round(np.log2(scale))
        scaled = make((X * power).astype(dtype), 20, random_state=0).encode((X * power).astype(dtype))
        if dtype == np.float32 and scale < 1e-30:
            X = (X * power).astype(dtype).astype(float) / power  # round like the scaled rows
        unscaled = make(X, 20, random_state=0).encode(X)
        np.testing.assert_array_equal(scaled.words, unscaled.words)

    @MAKERS
    def test_near_rows_have_near_codes(self, make):
        X, y = blobs(300, 10, 3)
        B = make(X, 64, random_state=0).decode(make(X, 64, random_state=0).encode(X)).astype(int)
        distances = (64 - B @ B.T) / 2
        same = y[:, None] == y[None]
        assert distances[same].mean() < 0.5 * distances[~same].mean()

    @MAKERS
    def test_seeds(self, make):
        X = cloud(100, 5)
        W = [make(X, 9, random_state=seed).W for seed in (0, 0, 1, np.random.default_rng(0), np.random.RandomState(3))]
        np.testing.assert_array_equal(W[0], W[1])
        assert all(not np.array_equal(W[0], other) for other in W[2:])

    @MAKERS
    def test_few_rows_and_constant_columns(self, make):
        for X in (np.ones((1, 3)), np.zeros((20, 3)), np.tile([1.0, 2.0, 3.0], (20, 1)), np.eye(3)[:, :2]):
            codes = make(X, 10, random_state=0).encode(X)
            assert codes.shape == (len(X), 10)
            if len(np.unique(X, axis=0)) == 1:
                assert (codes.words == codes.words[0]).all()

    @MAKERS
    def test_weights_equal_repetition(self, make):
        from shoal.binary.hashing import random_code, rotated_code
        from shoal.data.rows import Rows
        from shoal.data.sources import find_source
        from shoal.fit.random_streams import generator

        make_code = random_code if make is binary.lsh else rotated_code
        X, w = cloud(60, 4), np.random.default_rng(0).integers(0, 4, 60)
        weighted = make_code(Rows.of(find_source(X), w.astype(float)), 6, generator(0))
        repeated = make_code(Rows.of(find_source(np.repeat(X, w, axis=0))), 6, generator(0))
        np.testing.assert_allclose(weighted.mean, repeated.mean, atol=1e-12)
        np.testing.assert_allclose(weighted.W, repeated.W, atol=1e-5)

    @MAKERS
    def test_pickle(self, make):
        X = cloud(50, 4)
        code = make(X, 9, random_state=0)
        loaded, codes = pickle.loads(pickle.dumps((code, code.encode(X))))
        np.testing.assert_array_equal(loaded.encode(X).words, codes.words)

    @MAKERS
    def test_many_rows_are_sampled(self, make):
        X = np.random.default_rng(0).normal(size=(30_000, 3))
        code = make(X, 8, random_state=0)
        assert not np.array_equal(code.mean, X.mean(axis=0))
        np.testing.assert_allclose(code.mean, X.mean(axis=0), atol=0.05)


class TestItq:
    def test_quantization_error_is_below_that_of_principal_directions(self):
        """Figure 1 of the paper compares the two."""
        rng = np.random.default_rng(0)
        X = rng.choice([-1.0, 1.0], (2000, 8)) @ np.linalg.qr(rng.normal(size=(8, 8)))[0] + rng.normal(0, 0.1, (2000, 8))
        code = binary.itq(X, 8, random_state=0)
        V = (X - code.mean) @ code.W
        plain = (X - code.mean) @ np.linalg.svd(X - code.mean, full_matrices=False)[2].T
        error, plain_error = (((np.sign(S) - S) ** 2).sum() for S in (V, plain))
        assert error < 0.5 * plain_error

    @pytest.mark.parametrize(("d", "r"), [(5, 5), (12, 5), (5, 12)])
    def test_directions_are_orthonormal(self, d, r):
        W = binary.itq(cloud(300, d), r, random_state=0).W.astype(float)
        small = W.T @ W if r <= d else W @ W.T
        np.testing.assert_allclose(small, np.eye(min(d, r)), atol=1e-5)


class TestBadInput:
    @MAKERS
    @pytest.mark.parametrize("r", [0, -3, 2.5, "8", True, None])
    def test_n_bits(self, make, r):
        with pytest.raises(ValueError, match="n_bits"):
            make(cloud(20, 3), r)

    @MAKERS
    @pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
    @pytest.mark.parametrize("value", [np.nan, np.inf])
    def test_nan_and_infinity(self, make, layout, value):
        """A code is made from a sample; the other rows are checked when they are encoded."""
        X = cloud(25_000, 3)
        X[20_007, 1] = value
        with pytest.raises(ValueError, match=r"X contains (NaN|infinity) at row 20007, column 1"):
            make(cloud(20, 3), 8).encode(layout(X))
        X[20_007:, 1] = value
        with pytest.raises(ValueError, match=r"X contains (NaN|infinity) at row 2\d\d\d\d, column 1"):
            make(layout(X), 8, random_state=0)

    @MAKERS
    def test_wrong_number_of_columns(self, make):
        with pytest.raises(ValueError, match="X has 4 features, but the code was made for 3"):
            make(cloud(20, 3), 8).encode(cloud(20, 4))

    def test_only_rows_can_be_indexed(self):
        codes = Codes.pack(bits(9, 64))
        assert len(codes[3]) == 1
        assert codes[[1, 2], ...].shape == (2, 64)
        with pytest.raises(IndexError, match="indexed by rows"):
            codes[:, :5]

    def test_nan_cannot_be_packed(self):
        with pytest.raises(ValueError, match="rows contains NaN at row 0, column 1"):
            Codes.pack([[1.0, np.nan]])

    @pytest.mark.parametrize("n_threads", [0, -1, "2"])
    def test_n_threads(self, n_threads):
        with pytest.raises(ValueError, match="'n_threads' parameter of encode"):
            binary.lsh(cloud(20, 3), 8).encode(cloud(20, 3), n_threads=n_threads)

    @MAKERS
    def test_messages_name_the_function(self, make):
        with pytest.raises(ValueError, match=f"'n_bits' parameter of {make.__name__}"):
            make(cloud(20, 3), 0)

    def test_decoding_other_codes(self):
        code = binary.lsh(cloud(20, 3), 8)
        for other in (np.zeros((2, 1), np.uint64), Codes.pack(bits(4, 9))):
            with pytest.raises(ValueError, match="Codes of 8 bits"):
                code.decode(other)


def test_tiny_rows_have_the_same_codes_dense_and_sparse():
    X = cloud(200, 7)
    X[::2] -= X[::2].mean(axis=1, keepdims=True)  # on a hyperplane
    X = X * 2.0**-660
    code = LinearCode(np.zeros(7), np.ones((7, 3), np.float32))
    np.testing.assert_array_equal(code.encode(X).words, code.encode(sparse.csr_array(X)).words)
