"""Extreme scales, far origins and degenerate rows: results are right, or an error explains why there is none."""

import numpy as np
import pytest
from hypothesis import given
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score

from shoal import KMeans, MiniBatchKMeans, NestedKMeans, OnlineKMeans, SphericalMixture, metrics, open_rows
from shoal.data import rows as rows_module
from tests import naive
from tests.strategies import ALGORITHMS, blobs, cloud, first_rows, problems, spread_rows

X, Y = blobs(300, 4, 5)
LAYOUTS = (np.asarray, np.asfortranarray, sparse.csr_array)
few_distinct = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def fit(rows, **options):
    starts = 3 if isinstance(options.get("init", ""), str) else 1
    return KMeans(**{"n_clusters": 5, "n_init": starts, "random_state": 0, **options}).fit(rows)


def assert_finds_the_blobs(rows, layout=np.asarray, y=Y, **options):
    model = fit(layout(rows), **options)
    assert np.isfinite(model.cluster_centers_).all()
    assert adjusted_rand_score(y, model.labels_) >= 0.99
    np.testing.assert_array_equal(model.predict(layout(rows)), model.labels_)
    assert np.isfinite(model.transform(layout(rows))).all()
    return model


class TestScales:
    @pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
    @pytest.mark.parametrize("exponent", [-300, -200, -160, -150, -80, -20, 20, 80, 140, 150, 160, 200, 300])
    def test_float64(self, exponent, layout):
        rows = X * 10.0**exponent
        model = assert_finds_the_blobs(rows, layout)
        # an energy beyond the range of float64 must be infinite or zero
        unit = naive.energy(X, model.cluster_centers_ / 10.0**exponent)
        assert model.inertia_ == pytest.approx(_times_square(unit, exponent), rel=1e-6)

    @pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
    @pytest.mark.parametrize("exponent", [-36, -30, -20, -15, -10, 10, 15, 18, 20, 36])
    def test_float32(self, exponent, layout):
        rows = (X * 10.0**exponent).astype(np.float32)
        model = assert_finds_the_blobs(rows, layout)
        assert model.inertia_ == pytest.approx(naive.energy(rows, model.cluster_centers_), rel=1e-6)

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    @pytest.mark.parametrize("algorithm", ALGORITHMS)
    def test_denormals(self, dtype, algorithm):
        """Rows of subnormal numbers."""
        rows = (np.round(X * 100) * float(np.finfo(dtype).smallest_subnormal)).astype(dtype)
        assert_finds_the_blobs(rows, algorithm=algorithm)

    @pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
    @pytest.mark.parametrize("exponent", [-1000, -400, -200, -150, -130, 120, 130, 200, 400, 990])
    def test_algorithms_agree(self, exponent, layout):
        """Bounds are float32; distances that overflow or underflow it must not invalidate them."""
        rows = layout(cloud(400, 3) * 2.0**exponent)
        base = KMeans(20, init=first_rows(cloud(400, 3), 20), tol=0).fit(cloud(400, 3))
        for algorithm in ALGORITHMS[: 6 if layout is np.asarray else 5]:
            model = KMeans(20, init=first_rows(cloud(400, 3), 20) * 2.0**exponent, tol=0, algorithm=algorithm).fit(rows)
            np.testing.assert_array_equal(model.labels_, base.labels_)
            assert model.n_iter_ == base.n_iter_

    @pytest.mark.parametrize("exponent", [-300, -200, -30, 30, 200, 300])
    @pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
    def test_cosine_does_not_depend_on_scale(self, exponent, layout):
        base = fit(X, metric="cosine")
        scaled = fit(layout(X * 10.0**exponent), metric="cosine", init=base.cluster_centers_, n_init=1)
        np.testing.assert_array_equal(base.labels_, scaled.labels_)
        np.testing.assert_array_equal(scaled.predict(layout(X * 10.0**exponent)), scaled.labels_)

    @pytest.mark.parametrize("exponent", [306, 307])
    def test_energies_beyond_float64(self, exponent):
        rows = cloud(600, 3) * 10.0**exponent
        for model in (KMeans(3, random_state=0), NestedKMeans(3, random_state=0, quality=0.01)):
            np.testing.assert_array_equal(model.fit(rows).predict(rows), model.labels_)
            assert model.inertia_ == np.inf
            assert metrics.energy(rows, model.cluster_centers_) == np.inf
            assert 0 <= metrics.simplified_silhouette(rows, model.cluster_centers_) <= 1

    @pytest.mark.parametrize("init", ["k-means++", "k-means||", "afk-mc2", "random"])
    @pytest.mark.parametrize("exponent", [-200, 200])
    def test_every_initialization(self, init, exponent):
        assert_finds_the_blobs(X * 10.0**exponent, init=init, n_init=40)


def _times_square(energy, exponent):
    with np.errstate(over="ignore", under="ignore"):
        return np.float64(energy) * np.float64(10.0) ** exponent * np.float64(10.0) ** exponent


class TestOffsets:
    @pytest.mark.parametrize("layout", [np.asarray, np.asfortranarray])
    @pytest.mark.parametrize("offset", [-1e3, 1e5, -1e7, 1e9])
    def test_float64(self, offset, layout):
        rows = X + offset
        model = assert_finds_the_blobs(rows, layout)
        assert model.inertia_ == pytest.approx(naive.energy(rows, model.cluster_centers_), rel=1e-6)

    @pytest.mark.parametrize("offset", [1e2, 1e4, -1e5, 1e6])
    def test_float32(self, offset):
        rows = (X + offset).astype(np.float32)
        model = assert_finds_the_blobs(rows)
        assert model.inertia_ == pytest.approx(naive.energy(rows, model.cluster_centers_), rel=1e-6)

    @pytest.mark.parametrize("offset", [1e3, 1e5, 1e7])
    def test_sparse_rows_far_from_zero(self, offset):
        """All entries are stored."""
        rows = X + offset
        model = assert_finds_the_blobs(rows, sparse.csr_array)
        assert model.inertia_ == pytest.approx(naive.energy(rows, model.cluster_centers_), rel=1e-6)

    @pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32, np.uint64])
    def test_large_integers(self, dtype):
        rows = (np.round(X * 100) + 2_000_000_000).astype(dtype)
        assert_finds_the_blobs(rows)

    @pytest.mark.parametrize("algorithm", ALGORITHMS)
    def test_every_algorithm(self, algorithm):
        assert_finds_the_blobs((X + 1e5).astype(np.float32), algorithm=algorithm)

    def test_offset_of_one_column_only(self):
        assert_finds_the_blobs(X + np.array([0, 0, 1e8, 0]))
        assert_finds_the_blobs((X + np.array([0, 0, 1e5, 0])).astype(np.float32))


class TestFewDigits:
    """float32 rows far from zero have few significant digits, none of which may be lost."""

    def assert_exact_energy(self, rows, k, weights=None):
        model = KMeans(k, random_state=0).fit(rows, sample_weight=weights)
        np.testing.assert_array_equal(model.labels_, model.predict(rows))
        energy = metrics.energy(rows, model.cluster_centers_, sample_weight=weights)
        assert model.inertia_ == pytest.approx(energy, rel=1e-6)
        return model

    @pytest.mark.parametrize("seed", range(5))
    def test_one_unit_in_the_last_place(self, seed):
        rows = (np.random.default_rng(seed).integers(0, 2, (200, 4)) * 0.0625 + 1e6).astype(np.float32)
        model = self.assert_exact_energy(rows, 16)
        assert model.inertia_ == 0
        assert set(model.cluster_centers_.ravel()) == set(rows.ravel())

    def test_a_timestamp_column_and_small_columns(self):
        rng = np.random.default_rng(0)
        rows = np.c_[rng.normal(size=(500, 2)), 1.7e9 + 128 * rng.integers(0, 2, 500)].astype(np.float32)
        model = self.assert_exact_energy(rows, 4)
        assert model.inertia_ < 2 * 500  # the variances of the two other columns

    def test_a_large_constant_column_and_small_columns(self):
        rows = np.zeros((200, 2), np.float32)
        rows[:, 0], rows[100:, 1] = 1e6, 1
        rows[:100, 1] = 1e-9 * np.random.default_rng(0).normal(size=100)
        self.assert_exact_energy(rows, 2)
        assert len(set(self.assert_exact_energy(rows, 10).labels_)) == 10

    def test_a_distant_first_row(self):
        rng = np.random.default_rng(0)
        blobs = [rng.normal(0, 0.05, (100, 2)) + center for center in (1, 2)]
        rows, weights = np.concatenate([[[1e9, 1e9]], *blobs]).astype(np.float32), np.ones(201)
        weights[0] = 1e-30
        assert self.assert_exact_energy(rows, 2, weights).inertia_ < 2


def exact_energy(rows, centers, weights=None):
    """Return the energy from (x - c)^2 in long doubles."""
    rows, centers = np.asarray(rows, np.longdouble), np.asarray(centers, np.longdouble)
    squares = np.square(rows[:, None] - centers).sum(axis=2).min(axis=1)
    return float(squares.sum() if weights is None else (weights * squares).sum())


class TestFarFromTheShift:
    """Few rows near the origin, most others far from it: a shift to the majority must not round the few."""

    def rows(self, dtype, far, columns=(True, True)):
        """Return groups of spread 0.01, 0.1 apart, near the origin, and all other rows far away."""
        rng = np.random.default_rng(0)
        near = rng.normal(0, 0.01, (20, 2)) + np.repeat([[0, 0], [0.1, 0]], 10, axis=0)
        rows = np.concatenate([np.where(columns, far, 0.0) * np.ones((300, 2)), near])
        return rows.astype(dtype), np.repeat([0, 1, 2], [300, 10, 10])

    def assert_exact(self, rows, y, weights=None, layout=np.asarray, **options):
        model = KMeans(int(y.max()) + 1, **{"init": spread_rows(rows, y), "tol": 0, **options})
        model.fit(layout(rows), sample_weight=weights)
        assert adjusted_rand_score(y, model.labels_) == 1
        energy = exact_energy(rows, model.cluster_centers_, weights)
        means = np.stack([np.asarray(rows[y == j], np.longdouble).mean(axis=0) for j in range(int(y.max()) + 1)])
        assert energy == pytest.approx(exact_energy(rows, means, weights), rel=1e-6)
        assert model.inertia_ == pytest.approx(energy, rel=1e-6)
        assert -model.score(layout(rows), sample_weight=weights) == pytest.approx(energy, rel=1e-6)
        assert metrics.energy(layout(rows), model.cluster_centers_, weights) == pytest.approx(energy, rel=1e-6)
        np.testing.assert_array_equal(model.predict(layout(rows)), model.labels_)
        np.testing.assert_array_equal([model.predict(layout(rows[i : i + 1]))[0] for i in (0, 301, 315)], y[[0, 301, 315]])

    @pytest.mark.parametrize("far", [1e4, 1e6, -1e9])
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    @pytest.mark.parametrize("heavy", [None, 1e6])
    def test_small_groups(self, dtype, far, heavy):
        rows, y = self.rows(dtype, far)
        self.assert_exact(rows, y, None if heavy is None else np.where(y == 0, heavy, 1.0))

    @pytest.mark.parametrize("columns", [(True, False), (False, True)])
    @pytest.mark.parametrize("layout", LAYOUTS)
    def test_one_column(self, columns, layout):
        self.assert_exact(*self.rows(np.float32, 1e6, columns), layout=layout)

    @pytest.mark.parametrize("algorithm", ALGORITHMS)
    def test_every_algorithm(self, algorithm):
        self.assert_exact(*self.rows(np.float32, 1e6), algorithm=algorithm)

    def test_beyond_the_digits_of_float64(self):
        rows, y = self.rows(np.float64, 2.0**50)
        self.assert_exact(rows, y)

    def test_integers(self):
        rows, y = self.rows(np.float64, 1e4)
        self.assert_exact(np.round(rows * 1000).astype(np.int32), y)

    def test_an_outlier(self):
        rows, y = self.rows(np.float32, 100.0)
        self.assert_exact(np.concatenate([rows, np.full((1, 2), 1e10, np.float32)]), np.r_[y, 3])

    def test_given_initial_centroids(self):
        """Groups that the shift would merge are separated, and no warning reports equal rows."""
        rows, y = self.rows(np.float32, 1e9)
        model = KMeans(3, random_state=0, n_init=5).fit(rows)
        assert adjusted_rand_score(y, model.labels_) == 1

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_rows_that_differ_in_the_last_digit(self, dtype):
        """The origin is among the rows, so that they are not shifted."""
        place = dtype(1e6)
        rows = np.concatenate([np.zeros((40, 3)), np.full((40, 3), place), np.full((40, 3), place)]).astype(dtype)
        rows[80:, 0] = np.nextafter(place, dtype(np.inf)) if dtype is np.float32 else place + 1e-4
        model = KMeans(3, init=np.zeros((3, 3))).fit(rows)
        assert len(set(model.labels_)) == 3
        assert model.inertia_ == pytest.approx(0, abs=1e-15)

    def test_small_and_large_columns(self):
        """Rows are scaled so that squares do not overflow; small entries must not underflow in float32."""
        rng = np.random.default_rng(0)
        near = rng.normal(0, 1e-12, (40, 2)) + np.repeat([[0, 0], [1e-10, 0]], 20, axis=0)
        rows = np.concatenate([np.full((40, 2), 1e30), near]).astype(np.float32)
        y = np.repeat([0, 1, 2], [40, 20, 20])
        model = KMeans(3, init=spread_rows(rows, y), tol=0).fit(rows)
        np.testing.assert_array_equal(model.labels_, y)
        np.testing.assert_array_equal(model.predict(rows), y)


class TestNewRowsFarFromTheShift:
    """Prediction on rows near the origin by a model of rows far from it."""

    @pytest.mark.parametrize("layout", LAYOUTS)
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    @pytest.mark.parametrize("cls", [KMeans, MiniBatchKMeans, SphericalMixture])
    def test_with_centroids_set_by_the_user(self, cls, dtype, layout):
        rng = np.random.default_rng(0)
        model = cls(2, random_state=0).fit((1e6 + 100 * rng.integers(0, 2, (300, 2))).astype(dtype))
        rows = (rng.normal(0, 0.01, (60, 2)) + np.repeat([[0, 0], [0.1, 0]], 30, axis=0)).astype(dtype)
        model.cluster_centers_ = np.array([[0, 0], [0.1, 0]], dtype)
        distances = np.sqrt(naive.distances(rows, model.cluster_centers_))
        np.testing.assert_array_equal(model.predict(layout(rows)), distances.argmin(axis=1))
        np.testing.assert_allclose(model.transform(layout(rows)), distances, rtol=1e-6)
        among = np.concatenate([rows, np.full((5, 2), 1e6, dtype)])
        np.testing.assert_array_equal(model.predict(layout(among))[:60], distances.argmin(axis=1))

    @pytest.mark.parametrize("layout", LAYOUTS)
    @pytest.mark.parametrize("cls", [MiniBatchKMeans, OnlineKMeans])
    def test_in_a_later_chunk(self, cls, layout):
        rng = np.random.default_rng(0)
        first = (1e6 + 100 * rng.integers(0, 2, (300, 2))).astype(np.float32)
        rows = (rng.normal(0, 0.01, (60, 2)) + np.repeat([[0, 0], [0.1, 0]], 30, axis=0)).astype(np.float32)
        model = cls(3, init=[[1e6, 1e6], [0, 0], [0.1, 0]]).partial_fit(layout(first)).partial_fit(layout(rows))
        np.testing.assert_array_equal(model.labels_, np.repeat([1, 2], 30))
        np.testing.assert_array_equal(model.predict(layout(rows)), model.labels_)
        np.testing.assert_allclose(model.cluster_centers_[1:], [rows[:30].mean(axis=0), rows[30:].mean(axis=0)], atol=1e-3)
        assert model.inertia_ == pytest.approx(exact_energy(rows, model.cluster_centers_), rel=1e-6)


class TestSparseColumns:
    rows, y = blobs(300, 3, 3)
    rows = rows * np.eye(3)[y]  # one entry per row

    @pytest.mark.parametrize("value", [1e6, 1e17 / 3, -1e100, 1e300])
    def test_constant_column(self, value):
        """A constant column does not affect the clusters, however large it is."""
        rows = np.column_stack([self.rows, np.full(300, value)])
        model = KMeans(3, init=spread_rows(rows, self.y)).fit(sparse.csr_array(rows))
        dense = KMeans(3, init=spread_rows(rows, self.y)).fit(rows)
        assert adjusted_rand_score(self.y, model.labels_) == 1
        np.testing.assert_array_equal(model.labels_, dense.labels_)
        assert model.inertia_ == pytest.approx(dense.inertia_, rel=1e-9)
        for X in (rows, sparse.csr_array(rows)):
            np.testing.assert_array_equal(model.predict(X), model.labels_)
            np.testing.assert_array_equal(dense.predict(X), model.labels_)

    @pytest.mark.parametrize("value", [1e6, 1e300])
    def test_column_that_separates_the_rows(self, value):
        rows = np.column_stack([self.rows, np.where(self.y == 1, value, 0)])
        model = KMeans(2, random_state=0).fit(sparse.csr_array(rows))
        assert adjusted_rand_score(self.y == 1, model.labels_) == 1
        np.testing.assert_array_equal(model.predict(sparse.csr_array(rows)), model.labels_)

    def test_new_rows_without_the_column(self):
        """A row without an entry has a zero in the column."""
        rows = np.column_stack([self.rows, np.full(300, 1e6)])
        model = KMeans(3, init=spread_rows(rows, self.y)).fit(sparse.csr_array(rows))
        new = rows[:9].copy()
        new[::2, 3] = 0
        distances = np.sqrt(naive.distances(new, model.cluster_centers_))
        np.testing.assert_allclose(model.transform(sparse.csr_array(new)), distances, rtol=1e-12)


class TestLargeIntegers:
    """float64 rounds most integers beyond 2^53."""

    values = np.array([0, 100, 200])[np.arange(60) % 3][:, None]
    few_distinct = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

    @pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
    @pytest.mark.parametrize(("dtype", "offset"), [(np.int64, 2**62), (np.int64, -(2**62)), (np.uint64, 2**63)])
    @few_distinct
    def test_a_warning_names_the_place(self, dtype, offset, layout):
        rows = layout((self.values.astype(object) + offset).astype(dtype))
        with pytest.warns(UserWarning, match=r"at row 1, column 0, which float64 rounds: subtract an offset") as seen:
            model = KMeans(3, random_state=0).fit(rows)
        assert sum("float64 rounds" in str(warning.message) for warning in seen) == 1
        for ask in (model.predict, model.transform, model.score):
            with pytest.warns(UserWarning, match="at row 1, column 0") as seen:
                ask(rows)
            assert len(seen) == 1

    @pytest.mark.parametrize(
        ("dtype", "factor", "offset"), [(np.int64, 1, 2**52), (np.int64, 2**12, 2**61), (np.uint64, 2**11, 2**63)]
    )
    def test_exact_integers_do_not_warn(self, dtype, factor, offset):
        rows = (self.values.astype(object) * factor + offset).astype(dtype)
        model = KMeans(3, random_state=0).fit(rows)
        assert adjusted_rand_score(self.values.ravel(), model.labels_) == 1
        np.testing.assert_array_equal(model.predict(rows), model.labels_)

    @pytest.mark.parametrize("package", ["pandas", "polars", "pyarrow", "parquet"])
    @pytest.mark.parametrize("other", [np.float32, np.float64, np.uint64])
    @few_distinct
    def test_with_columns_of_floats(self, tmp_path, other, package):
        columns = {"a": np.arange(60).astype(other), "b": self.values.ravel() + 2**62}
        if package == "parquet":
            file = tmp_path / "x.parquet"
            pytest.importorskip("pyarrow.parquet").write_table(pytest.importorskip("pyarrow").table(columns), file)
            rows = open_rows(file)
        else:
            frames = pytest.importorskip(package)
            rows = (frames.table if package == "pyarrow" else frames.DataFrame)(columns)
        with pytest.warns(UserWarning, match="at row 1, column 'b', which float64 rounds") as seen:
            KMeans(3, random_state=0).fit(rows)
        assert sum("float64 rounds" in str(warning.message) for warning in seen) == 1


class TestFarFromTheFit:
    """Rows of another scale than in the fit: results are right, or an error is raised."""

    @pytest.mark.parametrize("layout", LAYOUTS)
    @pytest.mark.parametrize(
        ("dtype", "scale", "far"),
        [
            (np.float32, 1e-30, 1e20),
            (np.float32, 1e-30, 1e30),
            (np.float32, 1.0, 1e30),
            (np.float32, 1e-30, 1.0),
            (np.float32, 1e30, 1e-30),
            (np.float64, 1e-200, 1e-100),
            (np.float64, 1.0, 1e100),
            (np.float64, 1e200, 1.0),
        ],
    )
    def test_results_in_range(self, layout, dtype, scale, far):
        model = fit(layout((scale * X).astype(dtype)))
        rows = np.concatenate([scale * X, far * X, -far * X[::-1]]).astype(dtype)
        unit = max(far, scale)  # so that the oracle does not overflow
        distances = np.sqrt(naive.distances(rows.astype(float) / unit, model.cluster_centers_.astype(float) / unit))
        own = distances[np.arange(len(rows)), model.predict(layout(rows))]
        np.testing.assert_allclose(own, distances.min(axis=1), rtol=1e-12, atol=1e-300)
        np.testing.assert_array_equal(model.predict(layout(rows))[:300], model.labels_)
        np.testing.assert_allclose(model.transform(layout(rows)).astype(float) / unit, distances, rtol=1e-5)
        energy = _times_square(np.square(distances.min(axis=1)).sum(), np.log10(unit))
        assert -model.score(layout(rows)) == pytest.approx(energy, rel=1e-5)

    @pytest.mark.parametrize("layout", LAYOUTS)
    @pytest.mark.parametrize("scale", [1.0, 1e-200])
    @pytest.mark.parametrize("ask", ["predict", "transform", "score"])
    def test_error_beyond_float64(self, layout, scale, ask):
        rows = np.concatenate([scale * X, 1e200 * X[:2], scale * X])
        rows[300] = scale
        with pytest.raises(ValueError, match="Row 301 of X lies so far from the rows of the fit"):
            getattr(fit(layout(scale * X)), ask)(layout(rows))

    def test_cosine_has_no_limit(self):
        model = fit(X, metric="cosine")
        np.testing.assert_array_equal(model.predict(1e300 * X / 50), model.labels_)


class TestMixedScales:
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    @pytest.mark.parametrize("small", [1e-3, 1e-15, 1e-30])
    def test_columns(self, small, dtype):
        """The last column separates the blobs; the others are negligible."""
        assert_finds_the_blobs((X * [small, small, small, 1]).astype(dtype))

    @pytest.mark.parametrize("small", [1e-150, 1e-300])
    def test_columns_that_vanish_when_squared(self, small):
        assert_finds_the_blobs(X * [small, small, small, 1])
        assert_finds_the_blobs(X * [small, small, small, 1e200])

    def test_one_distant_row(self):
        rows = np.vstack([X, [[1e7] * 4]])
        model = assert_finds_the_blobs(rows, y=np.r_[Y, 5], init=spread_rows(rows, np.r_[Y, 5]), n_clusters=6)
        assert model.inertia_ == pytest.approx(naive.energy(rows, model.cluster_centers_), rel=1e-6)

    @pytest.mark.parametrize("spread", [1e-3, 1e-6, 1e-9])
    def test_tight_clusters_far_apart(self, spread):
        """|x|^2 - 2 x.c + |c|^2 would lose all digits of the energy."""
        rows, y = blobs(300, 4, 5, spread=spread)
        model = assert_finds_the_blobs(rows, y=y, init=spread_rows(rows, y), tol=0)
        assert model.inertia_ == pytest.approx(naive.energy(rows, model.cluster_centers_), rel=1e-6, abs=0)
        assert model.history_[-1]["energy"] == pytest.approx(model.inertia_, rel=1e-6, abs=0)


class TestEquivariance:
    rows = cloud(400, 5, seed=3)

    @pytest.mark.parametrize("exponent", [-60, -41, -20, 1, 20, 41, 60])
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    @pytest.mark.parametrize("layout", LAYOUTS)
    def test_powers_of_two(self, exponent, dtype, layout):
        rows = self.rows.astype(dtype)
        base = KMeans(12, random_state=0).fit(layout(rows))
        scaled = KMeans(12, random_state=0).fit(layout(rows * dtype(2.0**exponent)))
        np.testing.assert_array_equal(base.labels_, scaled.labels_)
        np.testing.assert_array_equal(base.cluster_centers_ * dtype(2.0**exponent), scaled.cluster_centers_)
        assert base.n_iter_ == scaled.n_iter_
        assert scaled.inertia_ == pytest.approx(np.ldexp(base.inertia_, 2 * exponent), rel=1e-12)

    @pytest.mark.parametrize("shift", [1.0, -37.5, 1e3, 1e6])
    @pytest.mark.parametrize("exponent", [-60, 0, 60])
    def test_scale_and_shift(self, shift, exponent):
        """Rows on a grid, so that the shift does not round them."""
        rows = np.round(self.rows * 2**20) / 2**20
        base = KMeans(12, init=first_rows(rows, 12)).fit(rows)
        moved = rows * 2.0**exponent + shift * 2.0**exponent
        model = KMeans(12, init=first_rows(moved, 12)).fit(moved)
        np.testing.assert_array_equal(base.labels_, model.labels_)

    @pytest.mark.parametrize("shift", [3.0, -37.5, 1e3, 1e4])
    @pytest.mark.parametrize("exponent", [-60, 0, 60])
    def test_scale_and_shift_of_float32(self, shift, exponent):
        """Rows on a coarser grid that float32 represents exactly."""
        rows = np.round(self.rows * 2**8) / 2**8
        base = KMeans(12, init=first_rows(rows, 12)).fit(rows.astype(np.float32))
        moved = ((rows + shift) * 2.0**exponent).astype(np.float32)
        model = KMeans(12, init=first_rows(moved, 12)).fit(moved)
        np.testing.assert_array_equal(base.labels_, model.labels_)


class TestLabelsArePredictions:
    @pytest.mark.parametrize("offset", [0, 100, 1e4, 1e6])
    @pytest.mark.parametrize("layout", LAYOUTS)
    @pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int32, np.int64])
    def test_every_dtype_layout_and_offset(self, dtype, layout, offset):
        if layout is sparse.csr_array and dtype is np.float16:
            dtype = np.float32  # scipy has no sparse float16
        rows = (10 * cloud(500, 6) + min(offset, 1e4 if dtype is np.float16 else offset)).astype(dtype)
        for options in ({}, {"max_iter": 2}, {"metric": "cosine"}):
            model = KMeans(15, random_state=0, **options).fit(layout(rows + dtype(1)))
            np.testing.assert_array_equal(model.predict(layout(rows + dtype(1))), model.labels_)

    @given(problems())
    @few_distinct
    def test_random_problems(self, problem):
        model = KMeans(len(problem.start), random_state=0).fit(problem.X, sample_weight=problem.weights)
        np.testing.assert_array_equal(model.predict(problem.X), model.labels_)


class TestTinyRows:
    """Rows whose squares underflow in float32, because one outlier is far larger than all others."""

    CENTERS = np.r_[7:24]  # the outlier and rows

    @staticmethod
    def rows(d, outlier):
        rows = (6 * np.random.default_rng(d).normal(size=(300, d))).astype(np.float32)
        if outlier is None:  # so that the frame is not scaled
            rows *= np.float32(1e-22)
            rows[7] = 1
        else:
            rows[7] *= np.float32(outlier)
        return rows

    @staticmethod
    def assert_nearest(rows, centers, labels):
        distances = ((rows[:, None].astype(np.longdouble) - centers.astype(np.longdouble)) ** 2).sum(axis=2)
        np.testing.assert_array_equal(labels, distances.argmin(axis=1))

    @pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
    @pytest.mark.parametrize("outlier", [1e21, 1e24, None])
    @pytest.mark.parametrize("d", [1, 3, 40])
    def test_labels(self, d, outlier, layout):
        rows = self.rows(d, outlier)
        options = {"init": rows[self.CENTERS], "n_init": 1, "max_iter": 2, "random_state": 0}
        models = [cls(17, **options) for cls in (OnlineKMeans, MiniBatchKMeans, NestedKMeans)]
        algorithms = [name for name in ALGORITHMS if name != "projected" or layout is np.asarray]
        for model in [*models, *(KMeans(17, algorithm=name, **options) for name in algorithms)]:
            model.fit(layout(rows))
            self.assert_nearest(rows, model.cluster_centers_, model.labels_)
            np.testing.assert_array_equal(model.predict(rows), model.labels_)
            np.testing.assert_array_equal(model.predict(sparse.csr_array(rows)), model.labels_)

    @pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
    def test_new_rows(self, layout):
        rows = self.rows(3, None)
        model = KMeans(17, init=rows[self.CENTERS], n_init=1, max_iter=1).fit(layout(rows))
        new = (rows * np.float32(1.25))[8:]
        self.assert_nearest(new, model.cluster_centers_, model.predict(layout(new)))


class TestDegenerate:
    def assert_valid(self, model, rows, weights=None):
        assert np.isfinite(model.cluster_centers_).all()
        assert model.inertia_ == pytest.approx(naive.energy(rows, model.cluster_centers_, weights), rel=1e-6, abs=1e-20)
        np.testing.assert_array_equal(model.predict(rows), model.labels_)

    @pytest.mark.parametrize("algorithm", ALGORITHMS)
    @pytest.mark.parametrize("value", [0.0, 0.1, 1e9, 1e-200])
    def test_all_rows_equal(self, algorithm, value):
        rows = np.full((50, 3), value)
        with pytest.warns(ConvergenceWarning, match=r"distinct clusters \(1\)"):
            model = KMeans(4, algorithm=algorithm, random_state=0).fit(rows)
        self.assert_valid(model, rows)
        assert model.inertia_ == 0
        np.testing.assert_array_equal(model.cluster_centers_[model.labels_], rows)

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    @pytest.mark.parametrize("init", ["k-means++", "k-means||", "afk-mc2", "random"])
    def test_fewer_distinct_rows_than_clusters(self, dtype, init):
        rows = cloud(3, 4, dtype=dtype)[np.arange(70) % 3]
        with pytest.warns(ConvergenceWarning, match=r"distinct clusters \(3\)"):
            model = KMeans(6, init=init, random_state=0).fit(rows)
        self.assert_valid(model, rows)
        assert model.inertia_ == pytest.approx(0, abs=1e-10 if dtype == np.float32 else 1e-25)

    @pytest.mark.parametrize("layout", LAYOUTS)
    @pytest.mark.parametrize("init", ["k-means++", "k-means||", "afk-mc2", "random"])
    def test_one_cluster_per_row(self, layout, init):
        rows = cloud(30, 4)
        model = KMeans(30, init=init, random_state=0).fit(layout(rows))
        assert sorted(model.labels_) == list(range(30))
        assert model.inertia_ == 0
        np.testing.assert_allclose(model.cluster_centers_[model.labels_], rows, rtol=1e-15)

    @pytest.mark.parametrize("algorithm", ALGORITHMS)
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_one_cluster(self, algorithm, dtype):
        rows = cloud(1000, 4, dtype=dtype)
        model = KMeans(1, algorithm=algorithm, random_state=0).fit(rows)
        np.testing.assert_allclose(model.cluster_centers_[0], rows.mean(axis=0, dtype=float), rtol=1e-6, atol=1e-7)
        self.assert_valid(model, rows)

    @pytest.mark.parametrize("algorithm", ALGORITHMS)
    @pytest.mark.parametrize("metric", ["euclidean", "cosine"])
    def test_one_row(self, algorithm, metric):
        model = KMeans(1, algorithm=algorithm, metric=metric).fit([[3.0, 4.0]])
        np.testing.assert_allclose(model.cluster_centers_, [[0.6, 0.8]] if metric == "cosine" else [[3, 4]], rtol=1e-15)
        assert (model.inertia_, model.labels_.tolist()) == (0, [0])

    @pytest.mark.parametrize("init", ["k-means++", "k-means||", "afk-mc2", "random"])
    def test_rows_of_zero_weight_have_no_effect(self, init):
        rows = np.vstack([X, 1e8 * cloud(300, 4)])
        weights = np.r_[np.ones(300), np.zeros(300)]
        model = KMeans(5, init=init, n_init=40, random_state=0).fit(rows, sample_weight=weights)
        assert adjusted_rand_score(Y, model.labels_[:300]) == 1
        self.assert_valid(model, rows, weights)

    @pytest.mark.parametrize("where", [0, 150, 299])
    def test_a_distant_row_of_zero_weight(self, where):
        rows, weights = X.copy(), np.ones(300)
        rows[where], weights[where] = 1e12, 0
        model = KMeans(5, init=spread_rows(X, Y), tol=0).fit(rows, sample_weight=weights)
        self.assert_valid(model, rows, weights)
        assert model.history_[-1]["energy"] == pytest.approx(model.inertia_, rel=1e-6)

    def test_fewer_rows_with_weight_than_clusters(self):
        weights = np.r_[np.ones(3), np.zeros(297)]
        with pytest.warns(ConvergenceWarning, match=r"distinct clusters \(3\)"):
            model = KMeans(5, random_state=0).fit(X, sample_weight=weights)
        self.assert_valid(model, X, weights)
        assert model.inertia_ == pytest.approx(0, abs=1e-20)

    @pytest.mark.parametrize("value", [0.0, 0.1, 1e6])
    def test_constant_columns(self, value):
        rows = np.column_stack([X, np.full(300, value), np.full(300, -value)])
        model = assert_finds_the_blobs(rows)
        np.testing.assert_array_equal(model.labels_, fit(X).labels_)
        np.testing.assert_allclose(model.cluster_centers_[:, 4], value, rtol=1e-15)

    def test_empty_sparse_rows_and_columns(self):
        rows = sparse.csr_array(np.pad(X, [(0, 5), (0, 7)]))
        model = KMeans(6, random_state=0, n_init=5).fit(rows)
        self.assert_valid(model, rows.toarray())

    def test_zero_matrix(self):
        with pytest.warns(ConvergenceWarning, match=r"distinct clusters \(1\)"):
            model = KMeans(2, random_state=0).fit(sparse.csr_array((10, 3)))
        assert model.inertia_ == 0

    @pytest.mark.parametrize("max_iter", [2, 300])
    def test_a_cluster_that_loses_its_heavy_rows(self, max_iter):
        rows = np.array([[0.0], [10.0], [5.0], [-3.1], [13.1]] + [[5.001]] * 5)
        weights = np.array([1e20, 1e20, 1, 1e20, 1e20] + [1] * 5)
        for algorithm in ALGORITHMS:
            options = {"init": [[5.0], [-6.0], [16.0]], "algorithm": algorithm, "max_iter": max_iter}
            model = KMeans(3, **options).fit(rows, sample_weight=weights)
            np.testing.assert_allclose(model.cluster_centers_.ravel(), [30.005 / 6, -1.55, 11.55], rtol=1e-9)

    @pytest.mark.parametrize("far", [1e15, 1e16, 1e100])
    def test_extreme_rows_of_zero_weight(self, far):
        rng = np.random.default_rng(0)
        rows, weights = rng.standard_normal((400, 20)), np.ones(400)
        rows[:30] *= far
        weights[:30] = 0
        model = KMeans(60, random_state=0, algorithm="projected").fit(rows, sample_weight=weights)
        np.testing.assert_array_equal(model.labels_, model.predict(rows))

    @pytest.mark.parametrize("seed", range(8))
    def test_distances_too_small_for_float32(self, seed):
        rng = np.random.default_rng(seed)
        rows = np.r_[rng.standard_normal((60, 2)) * 10.0 ** rng.integers(-47, -36), [[1.0, 0]]]
        models = [KMeans(12, init=rows[:12], tol=0, algorithm=algorithm).fit(rows) for algorithm in ALGORITHMS]
        for model in models[1:]:
            np.testing.assert_array_equal(model.labels_, models[0].labels_)
            np.testing.assert_array_equal(model.cluster_centers_, models[0].cluster_centers_)

    def test_huge_and_tiny_weights(self):
        weights = np.where(np.arange(300) % 2, 1e200, 1e-200)
        model = KMeans(5, init=spread_rows(X, Y)).fit(X, sample_weight=weights)
        self.assert_valid(model, X, weights)
        assert adjusted_rand_score(Y, model.labels_) == 1


def many(d):
    """Return enough rows for several blocks, half of them in clusters."""
    return np.concatenate([cloud(30_000, d, seed=d), blobs(20_000, d, 20, spread=1)[0]])


class TestDeterminism:
    def fit(self, d, dtype, **options):
        return KMeans(20, **{"random_state": 0, "max_iter": 8, **options}).fit(many(d).astype(dtype))

    @pytest.mark.parametrize("algorithm", ["lloyd", "yinyang", "projected"])
    @pytest.mark.parametrize("d", [3, 30])
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_threads(self, algorithm, d, dtype):
        one, *others = (self.fit(d, dtype, algorithm=algorithm, n_threads=threads) for threads in (1, 2, 4, 8, 8))
        for other in others:
            np.testing.assert_array_equal(one.cluster_centers_, other.cluster_centers_)
            np.testing.assert_array_equal(one.labels_, other.labels_)
            assert one.inertia_ == other.inertia_

    @pytest.mark.parametrize("init", ["k-means||", "afk-mc2", "random"])
    def test_initialization_with_threads(self, init):
        one, other = (self.fit(3, np.float32, init=init, n_init=1, n_threads=threads) for threads in (1, 4))
        np.testing.assert_array_equal(one.cluster_centers_, other.cluster_centers_)

    @pytest.mark.parametrize("size", [17, 100, 4097, 1 << 20])
    @pytest.mark.parametrize("algorithm", ["lloyd", "elkan", "projected"])
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_block_sizes(self, monkeypatch, size, algorithm, dtype):
        rows = many(3)[::50].astype(dtype)
        fit = KMeans(20, init=first_rows(rows, 20), algorithm=algorithm, max_iter=8).fit
        usual = fit(rows)
        usual_labels, usual_centers = usual.labels_, usual.cluster_centers_
        monkeypatch.setattr(rows_module, "BLOCK_ROWS", (size, size))
        other = fit(rows)
        np.testing.assert_array_equal(usual_labels, other.labels_)
        np.testing.assert_allclose(usual_centers, other.cluster_centers_, rtol=0, atol=1e-12 if dtype == np.float64 else 1e-6)

    @pytest.mark.parametrize("layout", LAYOUTS)
    def test_block_sizes_in_predict(self, monkeypatch, layout):
        rows = many(30)[::10]
        model = KMeans(20, init=first_rows(rows, 20), max_iter=3).fit(layout(rows))
        whole = [model.predict(layout(rows)), model.transform(layout(rows)), model.score(layout(rows))]
        monkeypatch.setattr(rows_module, "BLOCK_ROWS", (37, 37))
        np.testing.assert_array_equal(model.predict(layout(rows)), whole[0])
        np.testing.assert_array_equal(model.transform(layout(rows)), whole[1])
        assert model.score(layout(rows)) == pytest.approx(whole[2], rel=1e-12)

    def test_rows_one_by_one(self):
        rows = many(30)[:200].astype(np.float32)
        model = KMeans(20, init=first_rows(rows, 20)).fit(rows)
        alone = [model.predict(rows[i : i + 1])[0] for i in range(200)]
        np.testing.assert_array_equal(alone, model.labels_)


class TestEnergyOfSteps:
    @pytest.mark.parametrize("algorithm", ALGORITHMS)
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    @pytest.mark.parametrize("offset", [0, 1e3])
    def test_every_step(self, algorithm, dtype, offset):
        rows = (cloud(500, 8) + offset).astype(dtype)
        weights = np.random.default_rng(0).gamma(1, size=500)
        start = first_rows(rows, 12)
        _, exact = naive.lloyd(rows, start, weights=weights)
        model = KMeans(12, init=start, algorithm=algorithm, tol=0).fit(rows, sample_weight=weights)
        energies = [record["energy"] for record in model.history_]
        np.testing.assert_allclose(energies[:10], exact[:10], rtol=1e-6)
        assert model.inertia_ == pytest.approx(naive.energy(rows, model.cluster_centers_, weights), rel=1e-6)
        assert energies[-1] == pytest.approx(model.inertia_, rel=1e-6)
        assert (np.diff(energies) <= 1e-9 * energies[0]).all()

    @given(problems())
    @few_distinct
    def test_random_problems(self, problem):
        model = KMeans(len(problem.start), random_state=0).fit(problem.X, sample_weight=problem.weights)
        exact = naive.energy(problem.X, model.cluster_centers_, problem.weights)
        assert model.inertia_ == pytest.approx(exact, rel=1e-6, abs=1e-25)
        assert -model.score(problem.X, sample_weight=problem.weights) == pytest.approx(exact, rel=1e-6, abs=1e-25)

    @given(problems())
    @few_distinct
    def test_random_sparse_problems(self, problem):
        model = KMeans(len(problem.start), random_state=0).fit(sparse.csr_array(problem.X), sample_weight=problem.weights)
        exact = naive.energy(problem.X, model.cluster_centers_, problem.weights)
        assert model.inertia_ == pytest.approx(exact, rel=1e-6, abs=1e-25)
