"""The scikit-learn contract of every public estimator. A new estimator is covered once it is in `shoal.__all__`."""

import inspect
import pickle

import numpy as np
import pytest
import sklearn
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.estimator_checks import parametrize_with_checks

import shoal
from shoal.fit.centroid_model import BaseCentroidModel
from tests.strategies import ALGORITHMS, blobs

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

PUBLIC = [getattr(shoal, name) for name in shoal.__all__]
ESTIMATORS = [thing for thing in PUBLIC if inspect.isclass(thing) and issubclass(thing, BaseEstimator)]
VARIANTS = {
    "algorithm": ALGORITHMS,
    "init": ("k-means||", "afk-mc2", "random"),
    "mode": ("online",),
    "then": ("batch",),
    "affinity": ("self-tuning",),
}


def make_estimator(cls, **parameters):
    """Return an estimator with these parameters; a meta-estimator gets an inner KMeans with them."""
    if cls is not shoal.Standardized:
        return cls(**parameters)
    return cls(shoal.KMeans(**{"n_clusters": 3, "random_state": 0, **parameters}))


def variants():
    """Yield each option once, with the first estimator that has it: estimators share the code behind an option."""
    left = [(name, value) for name, values in VARIANTS.items() for value in values]
    for cls in ESTIMATORS:
        for name, value in left.copy():
            if any(isinstance(rule, StrOptions) and value in rule.options for rule in cls._parameter_constraints.get(name, ())):
                left.remove((name, value))
                yield cls(**{name: value})
    assert not left


def check_estimator(estimator, check, monkeypatch):
    if check.func.__name__.startswith("check_estimator_sparse_"):  # the check expects four classes
        monkeypatch.delattr(type(estimator), "predict_proba", raising=False)
    check(estimator)


@parametrize_with_checks([make_estimator(cls) for cls in ESTIMATORS])
def test_scikit_learn_accepts(estimator, check, monkeypatch):
    check_estimator(estimator, check, monkeypatch)


@pytest.mark.slow
@parametrize_with_checks(list(variants()))
def test_scikit_learn_accepts_options(estimator, check, monkeypatch):
    check_estimator(estimator, check, monkeypatch)


@pytest.fixture(params=ESTIMATORS, ids=lambda cls: cls.__name__)
def model(request):
    return make_estimator(request.param, n_clusters=3, random_state=0)


@pytest.fixture(params=[cls for cls in ESTIMATORS if issubclass(cls, BaseCentroidModel)], ids=lambda cls: cls.__name__)
def centroid_model(request):
    """Return a centroid estimator."""
    return request.param(n_clusters=3, random_state=0)


X, y = blobs(90, 3, 3)


def test_clone_has_equal_parameters_and_no_fit(model):
    copy = clone(model.fit(X))
    assert repr(copy.get_params()) == repr(model.get_params())
    with pytest.raises(NotFittedError):
        copy.predict(X)


@pytest.mark.parametrize("offset", [0.0, 1e5])
def test_pickle(model, offset):
    model.fit(X + offset)
    loaded = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(loaded.predict(X + offset), model.labels_)
    np.testing.assert_array_equal(loaded.transform(X + offset), model.transform(X + offset))


def test_return_values_of_fit_methods(model):
    assert model.fit(X) is model
    np.testing.assert_array_equal(clone(model).fit_predict(X), model.labels_)
    np.testing.assert_array_equal(clone(model).fit_transform(X), model.transform(X))


def test_fit_does_not_change_parameters(model):
    before = {name: repr(value) for name, value in model.get_params().items()}
    model.fit(X)
    assert before == {name: repr(value) for name, value in model.get_params().items()}


@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_set_output(model, package):
    frames = pytest.importorskip(package)
    out = model.set_output(transform=package).fit_transform(X)
    assert isinstance(out, frames.DataFrame)
    assert list(out.columns) == list(model.get_feature_names_out())
    np.testing.assert_array_equal(out.to_numpy(), model.set_output(transform="default").transform(X))


def test_feature_names_out(model):
    name = type(model).__name__.lower()
    assert list(model.fit(X).get_feature_names_out()) == [f"{name}{j}" for j in range(3)]


@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_feature_names_are_checked(model, package):
    frames = pytest.importorskip(package)
    table = frames.DataFrame({name: X[:, j] for j, name in enumerate("abc")})
    model.fit(table)
    assert list(model.feature_names_in_) == ["a", "b", "c"]
    np.testing.assert_array_equal(model.predict(table), model.labels_)
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(table[["b", "a", "c"]])
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        model.predict(X)


def broken(record):
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("rows", "options", "error"),
    [
        (np.full((9, 5), np.nan), {}, ValueError),
        (np.ones((2, 5)), {}, ValueError),
        (np.ones((9, 5)), {"callback": broken}, KeyboardInterrupt),
        (np.ones((9, 5)), {"init": np.ones((3, 4))}, ValueError),
    ],
    ids=["bad rows", "few rows", "interrupted", "bad start"],
)
def test_a_failed_fit_does_not_change_the_model(model, rows, options, error):
    frames = pytest.importorskip("pandas")
    usual = model.get_params()
    if not options.keys() <= usual.keys():
        pytest.skip(f"{type(model).__name__} has no {', '.join(options)}")
    table = frames.DataFrame(X, columns=list("abc"))
    before, labels = vars(model.fit(table)).copy(), model.labels_
    with pytest.raises(error):
        model.set_params(**options).fit(rows)
    assert vars(model.set_params(**usual)) == before
    np.testing.assert_array_equal(model.predict(table), labels)
    new = clone(model).set_params(**options)
    with pytest.raises(error):
        new.fit(rows)
    assert not [name for name in vars(new) if name.endswith("_")]


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_centroids_set_by_the_user(centroid_model, metric):
    if metric != centroid_model.metric:
        if "metric" not in centroid_model.get_params():
            pytest.skip(f"{type(centroid_model).__name__} has one metric")
        centroid_model.set_params(metric=metric)
    rows = np.abs(X) + 1
    fitted = clone(centroid_model).fit(rows)
    centroid_model.cluster_centers_ = fitted.cluster_centers_.tolist()
    if hasattr(fitted, "code_"):
        centroid_model.code_ = fitted.code_
    np.testing.assert_array_equal(centroid_model.predict(rows), fitted.labels_)
    np.testing.assert_allclose(centroid_model.transform(rows), fitted.transform(rows), atol=1e-12)
    assert centroid_model.score(rows) == pytest.approx(fitted.score(rows))


@pytest.mark.parametrize("shape", [(3,), (3, 2), (3, 4)])
def test_centroids_of_the_wrong_shape(centroid_model, shape):
    centroid_model.fit(X).cluster_centers_ = np.zeros(shape)
    with pytest.raises(ValueError, match=r"cluster_centers_ has shape .* expected \((n_clusters|3), (3|128)\)"):
        centroid_model.predict(X)


def test_metadata_routing_of_weights(centroid_model):
    weights = np.r_[np.ones(45), np.zeros(45)]
    with sklearn.config_context(enable_metadata_routing=True):
        last = clone(centroid_model).set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        pipeline = Pipeline([("scale", StandardScaler().set_fit_request(sample_weight=False)), ("cluster", last)])
        pipeline.fit(X, sample_weight=weights)
        scaled = pipeline[0].transform(X)
        alone = clone(centroid_model).fit(scaled, sample_weight=weights)
        np.testing.assert_array_equal(pipeline[-1].labels_, alone.labels_)
        assert pipeline.score(X, sample_weight=weights) == pytest.approx(alone.score(scaled, sample_weight=weights))
        assert not np.array_equal(alone.cluster_centers_, clone(centroid_model).fit(scaled).cluster_centers_)


def test_score(centroid_model):
    """Minus the energy, or the mean log-likelihood for mixtures."""
    centroid_model.fit(X)
    expected = (
        centroid_model.log_likelihood_ / len(X) if hasattr(centroid_model, "log_likelihood_") else -centroid_model.inertia_
    )
    assert centroid_model.score(X) == pytest.approx(expected)


def test_public_names():
    assert set(shoal.__all__) <= set(dir(shoal))
    assert ESTIMATORS
    with pytest.raises(AttributeError, match="nonsense"):
        shoal.nonsense  # noqa: B018
