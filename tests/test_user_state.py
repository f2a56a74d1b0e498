"""Attributes and parameters that users change between calls are validated before kernels run."""

import numpy as np
import pytest
from scipy import sparse

import shoal
from shoal.binary import LinearCode
from shoal.report import gather
from tests import naive
from tests.formats.resealed import MODELS, SCALARS, arrays_like, data_for, describe_harm, use_fitted
from tests.strategies import cloud

X = data_for("KMeans")


@pytest.mark.parametrize("kind", [kind for kind in MODELS if kind != "LinearCode"])
def test_changed_attributes(kind):
    rows, fitted = data_for(kind), MODELS[kind]().fit(data_for(kind))
    for name in [name for name in fitted._fitted_schema() if name in vars(fitted)]:
        old = vars(fitted)[name]
        for new in arrays_like(old, []) if isinstance(old, np.ndarray) and old.dtype != object else SCALARS:
            changed = MODELS[kind]()
            vars(changed).update({**vars(fitted), name: new})
            assert describe_harm(use_fitted, changed, rows, kind) is None, (name, new)


@pytest.mark.parametrize("cls", [shoal.MiniBatchKMeans, shoal.OnlineKMeans])
@pytest.mark.parametrize("k", [2, 300])
def test_wrong_number_of_centroids_in_partial_fit(cls, k):
    model = cls(3, random_state=0).partial_fit(X)
    model.cluster_centers_ = np.resize(X, (k, X.shape[1]))
    with pytest.raises(ValueError, match=f"cluster_centers_ is {k}, but was 3"):
        model.partial_fit(X)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("method", ["predict", "transform", "score"])
def test_centroids_that_are_not_finite(value, method):
    model = shoal.KMeans(3, random_state=0).fit(X)
    model.cluster_centers_[1, 2] = value
    with pytest.raises(ValueError, match="cluster_centers_ holds values"):
        getattr(model, method)(X)


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize(("size", "dtype"), [(1e25, np.float32), (3e37, np.float32), (1e100, np.float64)])
def test_centroids_far_from_the_rows_of_the_fit(size, dtype, layout):
    """Their squares overflow in the dtype of the rows, and may not in float64."""
    wide = cloud(200, 30, 0, dtype)
    model = shoal.KMeans(20, random_state=0, max_iter=3).fit(layout(wide))
    model.cluster_centers_ = (model.cluster_centers_ * dtype(size)).astype(dtype)
    distances = np.sqrt(naive.distances(wide, model.cluster_centers_))
    np.testing.assert_allclose(model.transform(layout(wide)), distances, rtol=1e-6)
    own = distances[np.arange(len(wide)), model.predict(layout(wide))]
    np.testing.assert_allclose(own, distances.min(axis=1), rtol=1e-12)


@pytest.mark.parametrize("method", ["predict", "transform", "score", "partial_fit"])
@pytest.mark.parametrize("size", [1e155, 1e300])
def test_centroids_too_far_for_float64(size, method):
    model = shoal.MiniBatchKMeans(3, random_state=0).fit(X.astype(np.float64))
    model.cluster_centers_[1] *= size
    with pytest.raises(ValueError, match="cluster_centers_ row 1 lies so far from the rows of the fit"):
        getattr(model, method)(X)


def test_running_means_too_far_for_float64():
    model = shoal.MiniBatchKMeans(3, random_state=0).fit(X)
    model._stream = model._stream._replace(centers=np.full((3, X.shape[1]), 1e308))
    before = model.cluster_centers_.copy()
    with pytest.raises(ValueError, match="The centroids are not finite"), np.errstate(all="ignore"):
        model.partial_fit(X)
    np.testing.assert_array_equal(model.cluster_centers_, before)


def test_centroids_must_have_unit_length_for_cosine():
    model = shoal.KMeans(3, metric="cosine", random_state=0).fit(X)
    model.cluster_centers_ = 5 * model.cluster_centers_
    with pytest.raises(ValueError, match="row 0 is not of unit length"):
        model.predict(X)


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("KMeans", {"metric": "cosine"}),
        ("CompressedKMeans", {"metric": "cosine"}),
        ("SphericalMixture", {"variance": 2.0}),
        ("LandmarkSpectral", {"normalize": True}),
    ],
)
def test_changed_parameters_of_the_model(kind, change, tmp_path):
    model = MODELS[kind]().fit(X)
    before = model.predict(X)
    (name,) = change
    old = getattr(model, name)
    model.set_params(**change)
    for call in (lambda: model.predict(X), lambda: shoal.save(model, tmp_path / "model.npz")):
        with pytest.raises(ValueError, match=f"{name}=.* was .* in the fit"):
            call()
    np.testing.assert_array_equal(model.set_params(**{name: old}).predict(X), before)


@pytest.mark.parametrize("n_threads", [0, -1, "many", 2.5])
def test_invalid_n_threads(n_threads):
    for kind in ("KMeans", "LandmarkSpectral"):
        model = MODELS[kind]().fit(X).set_params(n_threads=n_threads)
        with pytest.raises(ValueError, match="n_threads"):
            model.predict(X)


@pytest.mark.parametrize(
    "code",
    [
        LinearCode(np.zeros(1), np.ones((4, 8), np.float32)),
        LinearCode(np.zeros(4), np.ones((1, 8), np.float32)),
        LinearCode(np.zeros(4), np.full((4, 8), np.nan, np.float32)),
        LinearCode(np.zeros(4), np.ones((4, 8), np.float32), np.zeros(7)),
        LinearCode([0.0] * 4, np.ones((4, 8), np.float32)),
    ],
)
def test_invalid_codes(code):
    with pytest.raises(ValueError, match=r"code\.\w+ (has shape|holds|is of type)"):
        code.encode(X)


@pytest.mark.parametrize("labels", [np.full(120, 2**30), np.full(120, -1), np.zeros(120), np.zeros((120, 1), int)])
def test_labels_of_other_estimators(labels):
    """A report accepts the labels of any estimator."""

    class Other:
        labels_ = labels

        def get_params(self, deep=True):
            return {}

    with pytest.raises(ValueError, match="labels_ must be 120 integers from 0 to 119"):
        gather(Other(), X)


def test_rows_that_change_during_a_fit():
    """The rows are changed by a callback, as another thread could do."""
    rows = X.astype(np.float64)

    def spoil(record):
        rows[:] = np.nan

    model = shoal.KMeans(3, init=X[:3], algorithm="lloyd", tol=0, callback=spoil)
    with pytest.raises(ValueError, match="X was changed during the fit"), np.errstate(all="ignore"):
        model.fit(rows)
    assert not hasattr(model, "cluster_centers_")


def test_masked_centroids():
    model = shoal.KMeans(3, random_state=0).fit(X)
    model.cluster_centers_ = np.ma.masked_array(model.cluster_centers_, model.cluster_centers_ > 0)
    with pytest.raises(ValueError, match="cluster_centers_ has a mask"):
        model.predict(X)
