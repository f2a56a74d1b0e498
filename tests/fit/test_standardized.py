"""Standardized: the estimator inside sees what StandardScaler would have made of the rows."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.metrics import adjusted_rand_score
from sklearn.preprocessing import StandardScaler

import shoal
from shoal.data.cancellation import now
from shoal.data.scaling import Scaled
from shoal.data.sources import find_source
from shoal.fit import standardized
from shoal.fit.standardized import scales_of
from shoal.formats import checkpoint
from shoal.report import gather
from tests.strategies import blobs

X = blobs(300, 4, 3)[0] * [1, 1e6, 1e-6, 3] + [0, 5e6, 0, -7]


@pytest.fixture(params=["float64", "float32", "csr", "weighted", "file"])
def case(request, tmp_path):
    """Rows, weights, and the same rows as scikit-learn scales them."""
    if request.param == "csr":
        rows = sparse.csr_array(np.where(X.mean(axis=0) < X, X, 0))
        return rows, None, StandardScaler(with_mean=False).fit_transform(rows)
    weights = np.arange(300) % 4 if request.param == "weighted" else None
    rows = X.astype(np.float32) if request.param == "float32" else X
    scaled = StandardScaler().fit(rows, sample_weight=weights).transform(rows)
    if request.param == "file":
        np.save(tmp_path / "rows.npy", X)
        rows = shoal.open_rows(tmp_path / "rows.npy")
    return rows, weights, scaled


def test_equals_the_estimator_on_scaled_rows(case):
    rows, weights, scaled = case
    model = shoal.Standardized(shoal.KMeans(3, random_state=0)).fit(rows, sample_weight=weights)
    plain = shoal.KMeans(3, random_state=0).fit(scaled, sample_weight=weights)
    np.testing.assert_array_equal(model.labels_, plain.labels_)
    np.testing.assert_array_equal(model.predict(rows), plain.labels_)
    assert model.inertia_ == pytest.approx(plain.inertia_, rel=1e-5)
    assert model.score(rows, sample_weight=weights) == pytest.approx(-plain.inertia_, rel=1e-5)
    np.testing.assert_allclose(model.transform(rows), plain.transform(scaled), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(
        (model.cluster_centers_ - model.mean_) / model.scale_, plain.cluster_centers_, rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("estimator", [shoal.NestedKMeans(3, batch_size=20), shoal.BinaryKMeans(3), shoal.ExactSpectral(3)])
def test_wraps_any_estimator(estimator):
    estimator.random_state = 0
    model = shoal.Standardized(estimator).fit(X)
    plain = estimator.fit(StandardScaler().fit_transform(X))
    assert adjusted_rand_score(model.labels_, plain.labels_) == 1
    assert hasattr(model, "cluster_centers_") is (type(estimator) is shoal.NestedKMeans)


def test_constant_columns_and_outliers_in_front():
    rows = np.c_[X, np.full(300, 1e9 + 0.1)]
    rows[0, 3] = 1e14
    source = find_source(rows)
    mean, scale = scales_of(source)
    np.testing.assert_allclose(mean, rows.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(scale[:-1], rows[:, :-1].std(axis=0), rtol=1e-9)
    assert scale[-1] == 1
    assert not Scaled(source, np.stack([mean, scale]), source.dtype).read(0, 300)[:, -1].any()


def test_columns_whose_variance_underflows_or_overflows():
    rows = X * [1, 1, 1e-200, 1]
    with pytest.raises(ValueError, match="Column 2 of X spreads so much less"):
        shoal.Standardized(shoal.KMeans(2)).fit(rows)
    assert shoal.Standardized(shoal.KMeans(2)).fit(X * 1e200).scale_[2] == pytest.approx(1e200 * X[:, 2].std())


def test_messages_name_places_in_the_unscaled_rows():
    model = shoal.Standardized(shoal.KMeans(2)).fit(X)
    bad = X.copy()
    bad[123, 1] = np.inf
    with pytest.raises(ValueError, match="infinity at row 123, column 1"):
        model.predict(bad)


def test_resumes_from_a_checkpoint(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "SHARE", 1e9)  # after every step

    def cut(record):
        if record["step"] == 3:
            raise InterruptedError

    def make(callback=None):
        return shoal.Standardized(shoal.KMeans(9, random_state=0, tol=0, callback=callback))

    with pytest.raises(InterruptedError), shoal.Checkpoint(tmp_path / "checkpoint", every=0):
        make(cut).fit(X)
    assert (tmp_path / "checkpoint").exists()
    with shoal.Checkpoint(tmp_path / "checkpoint"):
        model = make().fit(X)
    np.testing.assert_array_equal(model.cluster_centers_, make().fit(X).cluster_centers_)


def test_a_report_is_in_the_units_of_the_rows():
    facts = gather(shoal.Standardized(shoal.KMeans(3, random_state=0)).fit(X), X)
    usual = {trait.column: trait.mean for cluster in facts.clusters for trait in cluster.traits}
    assert usual["column 1"] == pytest.approx(X[:, 1].mean())
    assert facts.measure == "squared distances of standardized rows"


class TestFineDifferences:
    """Scaled rows far from the mean may differ by less than the resolution of float32."""

    outlier = np.r_[[[1e12]], np.arange(89)[:, None] % 3 + 1].astype(np.float32)
    two_places = np.r_[np.full((30, 1), 1e6), np.random.default_rng(0).normal(size=(60, 1)) * 0.01].astype(np.float32)
    far = (np.random.default_rng(0).normal(size=(90, 1)) + 1e6).astype(np.float32)

    @pytest.mark.parametrize(
        ("rows", "layout"),
        [(outlier, np.asarray), (two_places, np.asarray), (far, sparse.csr_array)],
        ids=["an outlier", "two places", "far from zero"],
    )
    def test_small_differences_are_kept(self, rows, layout):
        model, exact = (
            shoal.Standardized(shoal.KMeans(4, random_state=0, n_init=3)).fit(layout(rows).astype(dtype))
            for dtype in (np.float32, np.float64)
        )
        assert model.inertia_ == pytest.approx(exact.inertia_, rel=1e-6)
        np.testing.assert_array_equal(model.labels_, exact.labels_)
        for one in (model, exact):
            for dtype in (np.float32, np.float64):
                np.testing.assert_array_equal(one.predict(layout(rows).astype(dtype)), exact.labels_)

    @pytest.mark.parametrize("draw", ["normal", "uniform", "exponential", "lognormal"])
    def test_ordinary_rows_stay_in_float32(self, draw):
        rows = getattr(np.random.default_rng(0), draw)(size=(20_000, 3)).astype(np.float32)
        model = shoal.Standardized(shoal.KMeans(3, random_state=0, max_iter=2)).fit(rows)
        assert model.cluster_centers_.dtype == np.float32


def test_the_time_budget_counts_from_the_call(monkeypatch):
    """The budget includes the pass over the rows that computes the scales."""
    measured, started = [], []
    real_scales, real_fit = standardized.scales_of, shoal.KMeans._fit
    monkeypatch.setattr(standardized, "scales_of", lambda *given: measured.append(now()) or real_scales(*given))
    monkeypatch.setattr(shoal.KMeans, "_fit", lambda *given: started.append(given[-1].started) or real_fit(*given))
    shoal.Standardized(shoal.KMeans(3, time_budget=60.0)).fit(X)
    shoal.KMeans(3).fit(X)
    assert started[0] < measured[0] < started[1]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
def test_new_rows_are_scaled_like_those_of_the_fit(layout):
    """Small integers with scales so small that the estimator needs float64 for float32 rows."""
    for seed in range(10):
        rng = np.random.default_rng(seed)
        rows, weights = layout(rng.integers(0, 7, (60, 4)).astype(np.uint8)), 10.0 ** rng.integers(-100, 100, 60)
        model = shoal.Standardized(shoal.KMeans(60, random_state=0)).fit(rows, sample_weight=weights)
        np.testing.assert_array_equal(model.predict(rows), model.labels_)
        assert -model.score(rows, sample_weight=weights) == pytest.approx(model.inertia_)
