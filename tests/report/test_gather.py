"""Facts of a fit against plain NumPy on the same rows, for every estimator and layout."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.decomposition import PCA

import shoal
from shoal.binary import Codes
from shoal.data.source import FileSource
from shoal.data.sources import find_source
from shoal.report import Curve, Options, Origin, gather
from tests import naive
from tests.strategies import blobs, cloud
from tests.test_contract import ESTIMATORS, make_estimator

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

X, Y = blobs(400, 5, 4)


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("cls", ESTIMATORS, ids=lambda cls: cls.__name__)
def test_every_estimator(cls, layout):
    rows = layout(X)
    model = make_estimator(cls, n_clusters=4, random_state=0).fit(rows)
    facts = gather(model, rows)
    np.testing.assert_array_equal(facts.sizes, np.bincount(model.labels_, minlength=4))
    assert (facts.n, facts.d, facts.k, facts.method.split()[0]) == (400, 5, 4, cls.__name__)
    if hasattr(model, "inertia_"):
        assert facts.energy == pytest.approx(model.inertia_, rel=1e-6)
    assert not facts.warnings
    assert 1 <= len(facts.curve.values) == len(facts.curve.seconds) <= model.n_iter_
    assert -1 <= facts.quality.silhouette <= 1
    assert facts.quality.davies_bouldin >= 0
    assert facts.map.points.shape == (400, 2)
    assert np.isfinite(facts.map.points).all()
    assert [c.size for c in facts.clusters] == sorted(facts.sizes, reverse=True)
    for cluster in facts.clusters:
        assert cluster.traits
        assert all(np.isfinite(t.z_score) for t in cluster.traits)
        assert all(model.labels_[row.number] == cluster.number for row in cluster.nearest)


PLACES = [(layout, offset) for layout in (np.asarray, sparse.csr_array) for offset in (0.0, 1e3, 1e6, 1e8)]


@pytest.mark.parametrize(("layout", "offset"), PLACES)
def test_clusters_match_numpy(layout, offset):
    rows = X + offset
    model = shoal.KMeans(4, random_state=0).fit(layout(rows))
    facts = gather(model, layout(rows))
    C = model.cluster_centers_
    squares = naive.distances(rows, C)[np.arange(400), model.labels_]
    mean, deviation = rows.mean(axis=0), rows.std(axis=0)
    for cluster in facts.clusters:
        mine = np.flatnonzero(model.labels_ == cluster.number)
        assert cluster.energy == pytest.approx(squares[mine].sum(), rel=1e-5)
        assert cluster.distance == pytest.approx(np.sqrt(squares[mine]).mean(), rel=1e-5)
        nearest = mine[np.argsort(squares[mine], kind="stable")][:5]
        assert [row.number for row in cluster.nearest] == nearest.tolist()
        z = (C[cluster.number] - mean) / deviation
        top = [i for i in np.argsort(-abs(z))[:6] if abs(z[i]) >= 0.25]
        assert [t.column for t in cluster.traits] == [f"column {i}" for i in top]
        np.testing.assert_allclose([t.z_score for t in cluster.traits], z[top], rtol=1e-3)
        np.testing.assert_allclose([t.mean for t in cluster.traits], mean[top], rtol=1e-5, atol=1e-6)
    assert facts.quality.silhouette == pytest.approx(naive.simplified_silhouette(rows, C, model.labels_), rel=1e-4)
    assert facts.quality.davies_bouldin == pytest.approx(naive.davies_bouldin(rows, C, model.labels_), rel=1e-4)


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
def test_the_map_matches_pca(layout):
    model = shoal.KMeans(4, random_state=0).fit(layout(X))
    facts = gather(model, layout(X))
    pca = PCA(2).fit(X)
    np.testing.assert_allclose(abs(facts.map.points), abs(pca.transform(X)), atol=1e-5)
    np.testing.assert_allclose(facts.map.shares, pca.explained_variance_ratio_, rtol=1e-6)


def test_cosine_profiles_use_unit_vectors():
    rows = cloud(300, 6) + 3 * np.eye(6)[0]
    model = shoal.KMeans(3, metric="cosine", random_state=0).fit(rows)
    facts = gather(model, rows)
    unit = naive.unit(rows)
    for cluster in facts.clusters:
        z = (model.cluster_centers_[cluster.number] - unit.mean(axis=0)) / unit.std(axis=0)
        best = int(np.argmax(abs(z)))
        assert cluster.traits[0].column == f"column {best}"
        assert cluster.traits[0].z_score == pytest.approx(z[best], rel=1e-5)
    assert facts.energy == pytest.approx(model.inertia_, rel=1e-9)
    assert facts.measure == "1 - cosine"


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
def test_cosine_profiles_of_rows_far_from_the_origin(layout):
    """All angles are small, so that the standard deviations of unit vectors are tiny compared to their means."""
    rows = X + 1e8
    model = shoal.KMeans(4, metric="cosine", random_state=0).fit(layout(rows))
    facts = gather(model, layout(rows))
    unit = naive.unit(rows)
    z = (model.cluster_centers_ - unit.mean(axis=0)) / unit.std(axis=0)
    for cluster in facts.clusters:
        mine = z[cluster.number]
        top = [i for i in np.argsort(-abs(mine)) if abs(mine[i]) >= 0.25]
        assert [t.column for t in cluster.traits] == [f"column {i}" for i in top]
        np.testing.assert_allclose([t.z_score for t in cluster.traits], mine[top], rtol=1e-4)


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("offset", [0.0, 1e4, 1e6])
def test_cosine_quality_of_rows_in_float32(layout, offset):
    rows = (X + offset).astype(np.float32)
    model = shoal.KMeans(4, metric="cosine", random_state=0).fit(layout(rows))
    quality = gather(model, layout(rows)).quality
    arguments = rows, model.cluster_centers_, model.labels_
    assert quality.silhouette == pytest.approx(shoal.metrics.simplified_silhouette(*arguments, metric="cosine"), rel=1e-9)
    assert quality.davies_bouldin == pytest.approx(shoal.metrics.davies_bouldin(*arguments, metric="cosine"), rel=1e-9)


def test_packed_codes_and_thresholded_numbers():
    numbers = cloud(300, 70)
    bits = numbers > 0
    words = Codes.pack(bits)
    of_codes = gather(shoal.BinaryKMeans(3, random_state=0).fit(words), words)
    of_numbers = gather(shoal.BinaryKMeans(3, threshold=0.0, random_state=0).fit(numbers), numbers)
    assert of_codes.measure == of_numbers.measure == "differing bits"
    assert of_codes.map.space == "codes"
    np.testing.assert_array_equal(of_codes.sizes, of_numbers.sizes)
    assert of_codes.quality.silhouette == pytest.approx(of_numbers.quality.silhouette)
    trait = of_codes.clusters[0].traits[0]
    assert 0 <= trait.value <= 1  # the fraction of ones
    C = shoal.BinaryKMeans(3, random_state=0).fit(words).cluster_centers_
    D = np.sort((bits[:, None] != C).sum(axis=2), axis=1)
    assert of_codes.quality.silhouette == pytest.approx((1 - D[:, 0] / D[:, 1]).mean())


class Embedded(ClusterMixin, BaseEstimator):
    """Estimator without centroids."""

    def __init__(self, embed=True):
        self.embed = embed

    def fit(self, X, y=None):
        self.labels_ = Y
        if self.embed:
            self.embedding_ = np.eye(4)[Y] + 0.01 * cloud(len(Y), 4)
        self.history_ = [{"step": 1, "seconds": 0.5, "objective": -2.0}]
        return self


@pytest.mark.parametrize("embed", [True, False])
def test_an_estimator_without_centroids(embed):
    facts = gather(Embedded(embed).fit(X), X)
    assert facts.map.space == ("embedding" if embed else "rows")
    assert facts.quality.silhouette > 0.8
    assert facts.curve.measure == "objective"
    assert len(facts.curve.visited) == 0
    means = np.array([X[j == Y].mean(axis=0) for j in range(4)])
    for cluster in facts.clusters:
        for trait in cluster.traits:
            assert trait.value == pytest.approx(means[cluster.number, int(trait.column.split()[1])])


class Counting(FileSource):
    """Source that counts the rows read from it."""

    def __init__(self, X):
        self.source, self.read_rows = find_source(X), 0
        self.shape, self.dtype = self.source.shape, self.source.dtype
        self.id_column = [f"row-{i}" for i in range(len(X))]
        self.feature_names = [f"c{i}" for i in range(X.shape[1])]

    def read(self, start, stop):
        self.read_rows += stop - start
        return self.source.read(start, stop)

    def take(self, rows):
        self.read_rows += len(rows)
        return self.source.take(rows)

    def materialize(self, rows, copy_limit=np.inf):
        return find_source(self.take(rows))


@pytest.mark.parametrize(("cls", "image", "passes"), [("KMeans", None, 1), ("KMeans", (2, 4), 2), ("BinaryKMeans", (2, 4), 2)])
def test_rows_are_read_at_most_twice(cls, image, passes):
    rows = Counting(cloud(20_000, 8, dtype=np.float32))
    model = getattr(shoal, cls)(5, random_state=0).fit(rows)
    rows.read_rows = 0
    facts = gather(model, rows, Options(image=image, sample=500))
    assert rows.read_rows <= passes * 20_000 + 10
    assert len(facts.map.points) == facts.quality.sample == 500
    assert facts.clusters[0].nearest[0].name.startswith("row-")
    assert facts.clusters[0].traits[0].column.startswith("c")
    assert (facts.clusters[0].nearest[0].picture is not None) == (image is not None)


@pytest.mark.parametrize("n_threads", [1, 3])
def test_neither_threads_nor_blocks_change_the_facts(n_threads, monkeypatch):
    rows = cloud(9000, 3)
    facts = gather(shoal.KMeans(7, random_state=0, n_threads=n_threads).fit(rows), rows)
    monkeypatch.setattr("shoal.data.rows.BLOCK_ROWS", (64, 256))
    again = gather(shoal.KMeans(7, random_state=0, n_threads=n_threads).fit(rows), rows)
    numbers = [[row.number for row in c.nearest] for c in facts.clusters]
    assert numbers == [[row.number for row in c.nearest] for c in again.clusters]
    np.testing.assert_array_equal(facts.map.labels, again.map.labels)


def test_pictures_show_the_centroids_and_the_rows():
    model = shoal.KMeans(3, random_state=0).fit(cloud(100, 6))
    facts = gather(model, cloud(100, 6), Options(image=(2, 3)))
    assert {t.column for c in facts.clusters for t in c.traits} <= {f"pixel {i},{j}" for i in range(2) for j in range(3)}
    for cluster in facts.clusters:
        np.testing.assert_array_equal(cluster.picture, model.cluster_centers_[cluster.number].reshape(2, 3))
        for row in cluster.nearest:
            np.testing.assert_array_equal(row.picture, cloud(100, 6)[row.number].reshape(2, 3))


def test_names_of_rows_and_columns():
    frames = pytest.importorskip("pandas")
    table = frames.DataFrame(X, columns=list("abcde"), index=range(1000, 1400))
    ids, texts = [f"id{i}" for i in range(400)], frames.Series([f"text {i}" for i in range(400)], index=range(7, 407))
    facts = gather(shoal.KMeans(4, random_state=0).fit(table), table, Options(ids=ids, texts=texts))
    row = facts.clusters[0].nearest[0]
    assert (row.name, row.text) == (f"id{row.number}", f"text {row.number}")
    assert facts.clusters[0].traits[0].column in "abcde"
    named = gather(shoal.KMeans(4, random_state=0).fit(X), X, Options(columns=list("vwxyz"), ids=np.array([b"\xff"] * 400)))
    assert named.clusters[0].traits[0].column in "vwxyz"
    assert named.clusters[0].nearest[0].name == "\ufffd"


def test_missing_texts_are_empty():
    frames = pytest.importorskip("pandas")
    model = shoal.KMeans(1, random_state=0).fit(X[:5])
    texts = [None, np.nan, frames.NA, frames.NaT, "None"]
    rows = gather(model, X[:5], Options(ids=[None] * 5, texts=texts)).clusters[0].nearest
    assert {row.number: (row.name, row.text) for row in rows} == {**dict.fromkeys(range(4), ("", "")), 4: ("", "None")}


def test_new_rows_are_predicted_with_a_warning():
    model = shoal.KMeans(4, random_state=0).fit(X)
    facts = gather(model, X[:300])
    np.testing.assert_array_equal(facts.sizes, np.bincount(model.predict(X[:300]), minlength=4))
    assert "these are not the rows of the fit" in facts.warnings[0]


def test_the_energy_is_weighted():
    weights = np.random.default_rng(0).uniform(0, 3, 400)
    model = shoal.KMeans(4, random_state=0).fit(X, sample_weight=weights)
    facts = gather(model, X, Options(weights=weights))
    assert facts.energy == pytest.approx(model.inertia_)
    assert not facts.warnings
    assert gather(model, X).warnings


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (Options(ids=[1]), "ids has 1 entries for 400 rows"),
        (Options(texts=["a"] * 401), "texts has 401 entries"),
        (Options(columns=["a"]), "columns has 1 names for 5 columns"),
        (Options(image=(2, 3)), "image=2x3 does not fit rows of 5 columns"),
        (Options(image=(5,)), "image=5 does not fit"),
        (Options(image=(1, 1, 5)), "image=1x1x5 does not fit"),
    ],
)
def test_invalid_options_are_rejected(options, message):
    with pytest.raises(ValueError, match=message):
        gather(shoal.KMeans(4, random_state=0).fit(X), X, options)


@pytest.mark.parametrize(
    ("rows", "k"),
    [
        (np.ones((20, 3)), 2),
        (cloud(5, 1), 1),
        (cloud(6, 1), 6),
        (np.ones((1, 1)), 1),
        (1e-200 * cloud(50, 3), 3),
        (1e150 * cloud(50, 3), 3),
        (sparse.csr_array((9, 4)), 2),
        (sparse.csr_array(cloud(9, 2)), 2),
    ],
)
def test_degenerate_rows(rows, k):
    model = shoal.KMeans(k, random_state=0).fit(rows)
    facts = gather(model, rows)
    assert int(facts.sizes.sum()) == rows.shape[0]
    assert np.isfinite(facts.map.points).all()


def test_origin_is_filled_in():
    model = shoal.KMeans(4, random_state=7, max_iter=9).fit(X)
    origin = gather(model, X, origin=Origin(command="shoal fit")).origin
    assert origin.seed == 7
    assert origin.command == "shoal fit"
    assert dict(origin.parameters) == {"n_clusters": "4", "random_state": "7", "max_iter": "9"}
    assert origin.versions["shoal"] == shoal.__version__


def test_curves_skip_values_that_are_not_finite():
    history = [{"seconds": s, "energy": e, "rows": 10} for s, e in ((0.1, 5.0), (0.2, np.nan), (0.3, 4.0))]
    curve = Curve.of(history)
    assert curve.visited.tolist() == [10, 30]
    assert curve.values.tolist() == [5, 4]
    assert len(Curve.of([]).values) == 0
    assert Curve.of([{"seconds": 0.1, "loss": 1.0}, *history]).values.tolist() == [5, 4]
    curve = Curve.of([{"seconds": 0.1, "energy": np.nan, "objective": 1.0}, {"seconds": 0.2, "energy": None}])
    assert (curve.measure, curve.values.tolist()) == ("objective", [1.0])
