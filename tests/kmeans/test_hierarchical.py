"""Hierarchical k-means: the search and the steps against slow versions, the tree, its measured gap, and hard rows."""

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.metrics import adjusted_rand_score

import shoal
from shoal import HierarchicalKMeans
from shoal.data.blocks import CenterLists, DenseBlock, SparseBlock
from shoal.data.rows import Rows
from shoal.data.sources import find_source
from shoal.execution.threads import on_threads
from shoal.fit.environment import FitEnvironment
from shoal.kmeans.center_tree import find_neighborhoods
from shoal.kmeans.nearest_check import check_nearest
from shoal.kmeans.tree_building import allot, level_sizes
from tests import naive
from tests.strategies import blobs, cloud

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
X = cloud(3000, 6, dtype=np.float32)
OPTIONS = {"n_levels": 2, "n_neighbors": 12, "random_state": 0}


@pytest.fixture(scope="module")
def model():
    return HierarchicalKMeans(150, **OPTIONS).fit(X)


@pytest.mark.parametrize("integers", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("d", [1, 3, 40])
@pytest.mark.parametrize("sparse", [False, True])
def test_nearest_of_a_list(dtype, d, sparse, integers):
    """Rows of each group get the nearest of its list, the first of ties, whatever the present labels are."""
    rng = np.random.default_rng(d)
    rows, C = rng.normal(size=(500, d)), rng.normal(size=(90, d))
    if integers:
        rows, C = np.round(rows), np.round(C)  # many ties
    rows, C = rows.astype(dtype), C.astype(dtype)
    groups = rng.integers(0, 7, 500).astype(np.int32)
    lists = [np.sort(rng.choice(90, size, replace=False)).astype(np.int32) for size in (1, 2, 15, 16, 17, 40, 90)]
    listed = CenterLists(np.cumsum([0, *map(len, lists)]), np.concatenate(lists))
    block = SparseBlock(csr_array(rows)) if sparse else DenseBlock(rows)
    expected = naive.nearest_listed(rows, C, groups, lists)
    for before in (np.full(500, -1), rng.integers(0, 90, 500), expected):
        labels = before.astype(np.int32)
        compared = block.relabel_listed(block.prepare(C), listed, groups, labels)
        np.testing.assert_array_equal(labels, expected)
        assert compared == sum(len(lists[g]) for g in groups)


def test_steps_match_the_definition():
    """With exact neighbors in every step, a step is that of the plain version."""
    model = HierarchicalKMeans(60, n_levels=1, n_neighbors=8, max_iter=1, tol=0, random_state=0)
    seen = []
    rows = cloud(900, 3, seed=1)
    model._fit(
        rows,
        None,
        FitEnvironment.current(None, rows)._replace(observers=(lambda _, s: seen.append((s, s.partition.labels.copy())),)),
    )
    state, labels = seen[0]
    assert state.steps == 1
    means = np.stack([rows[labels == j].mean(axis=0) for j in range(60)])
    np.testing.assert_allclose(state.centers, means, atol=1e-12)


@pytest.mark.parametrize("k", [5, 100, 900])
def test_neighbors(k):
    """Without a level above, neighbors are the nearest centroids; with one, most of them are."""
    C = cloud(k, 4)
    with on_threads(Rows.of(find_source(X)), 2) as rows:
        found = find_neighborhoods(rows, (), C, 16)
    distances = ((C[:, None] - C[None]) ** 2).sum(axis=2)
    expected = np.sort(np.argsort(distances, axis=1, kind="stable")[:, : min(16, k)], axis=1)
    np.testing.assert_array_equal(found.neighbors, expected)
    np.fill_diagonal(distances, np.inf)
    np.testing.assert_array_equal(found.nearest, distances.argmin(axis=1))


def test_labels_are_those_of_predict(model):
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    np.testing.assert_array_equal(model.predict(X[::-1])[::-1], model.labels_)
    np.testing.assert_array_equal(model.predict(X.astype(np.float64)), model.labels_)
    assert model.score(X) == pytest.approx(-model.inertia_)
    assert model.inertia_ == pytest.approx(((X - model.cluster_centers_[model.labels_].astype(float)) ** 2).sum())


def test_exact_predictions(model):
    expected = naive.labels(X.astype(float), model.cluster_centers_.astype(float))
    np.testing.assert_array_equal(model.predict(X, exact=True), expected)
    exact = HierarchicalKMeans(150, refine="exact", **OPTIONS).fit(X)
    np.testing.assert_array_equal(exact.labels_, naive.labels(X.astype(float), exact.cluster_centers_.astype(float)))
    np.testing.assert_array_equal(exact.predict(X), exact.labels_)
    assert exact.off_nearest_ == exact.excess_energy_ == 0.0
    assert "every row is with its nearest" in exact.summary_


def test_levels(model):
    """Every centroid has a parent, every parent a child; energies are those of the definition."""
    coarse, fine = model.levels_
    assert len(fine.centers) == 150
    assert fine.parents is model.parents_
    assert set(model.parents_) == set(range(len(coarse.centers)))
    for number, level in enumerate(model.levels_):
        labels = model.labels_at(number)
        energy = ((X - level.centers[labels].astype(float)) ** 2).sum()
        assert model.level_energies_[number] == pytest.approx(energy)
    np.testing.assert_array_equal(model.labels_at(-1), model.labels_)
    np.testing.assert_array_equal(model.labels_at(0), model.parents_[model.labels_])
    with pytest.raises(ValueError, match="level=2 does not exist: give 0"):
        model.labels_at(2)


@pytest.mark.parametrize("n_levels", [1, 2, 3])
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_close_to_exact_k_means(n_levels, metric):
    """The energy is at most 5% above that of exact k-means, which starts from more careful seeds."""
    rows = cloud(4000, 5, seed=2) + (3 if metric == "cosine" else 0)
    model = HierarchicalKMeans(120, n_levels=n_levels, metric=metric, random_state=0).fit(rows)
    exact = shoal.KMeans(120, metric=metric, random_state=0).fit(rows)
    assert model.inertia_ <= 1.05 * exact.inertia_
    assert len(model.levels_) == n_levels


def test_weights_count_as_repetitions():
    """Labels of the weighted rows are nearest, their energies count by weight, and rows of weight zero move nothing."""
    weights = np.random.default_rng(0).integers(0, 3, len(X)).astype(float)
    model = HierarchicalKMeans(150, **OPTIONS).fit(X, sample_weight=weights)
    assert model.inertia_ == pytest.approx(
        (weights * ((X - model.cluster_centers_[model.labels_].astype(float)) ** 2).sum(1)).sum()
    )
    changed = X.copy()
    changed[weights == 0] *= 1.5
    other = HierarchicalKMeans(150, **OPTIONS).fit(changed, sample_weight=weights)
    np.testing.assert_array_equal(other.labels_[weights > 0], model.labels_[weights > 0])


@pytest.mark.parametrize("dtype", [np.float16, np.int8, np.uint8])
def test_narrow_types_give_the_result_of_wide_ones(dtype):
    rows = np.clip(np.round(20 * np.abs(X)), 0, 100)
    one, other = (HierarchicalKMeans(100, **OPTIONS).fit(rows.astype(kind)) for kind in (dtype, np.float32))
    np.testing.assert_array_equal(one.labels_, other.labels_)


def test_files_give_the_result_of_memory(tmp_path, model):
    np.save(tmp_path / "X.npy", X)
    for rows in (shoal.open_rows(tmp_path / "X.npy"), np.load(tmp_path / "X.npy", mmap_mode="r")):
        found = HierarchicalKMeans(150, **OPTIONS).fit(rows)
        np.testing.assert_array_equal(found.cluster_centers_, model.cluster_centers_)
        np.testing.assert_array_equal(found.labels_, model.labels_)


def test_gap_lies_in_its_interval():
    """Of 20 samples, at most three intervals of 95% miss the share and the energy of all rows."""
    rows = cloud(30_000, 6, seed=3, dtype=np.float32)
    model = HierarchicalKMeans(200, n_levels=3, n_neighbors=3, max_iter=2, random_state=0).fit(rows)
    C = model.cluster_centers_
    nearest = model.predict(rows, exact=True)
    off = (nearest != model.labels_).mean()
    saved = 1 - ((rows - C[nearest].astype(float)) ** 2).sum() / model.inertia_
    assert off > 0.01
    missed = np.zeros(2)
    with on_threads(Rows.of(find_source(rows)), 2) as all_rows:
        for seed in range(20):
            check = check_nearest(all_rows, C, model.labels_, model.inertia_, np.random.default_rng(seed))
            assert 1000 <= check.rows < len(rows)
            missed += [not low <= true <= high for true, (_, low, high) in ((off, check.off), (saved, check.excess))]
    assert missed.max() <= 3
    low, high = model.off_nearest_interval_
    assert low <= model.off_nearest_ <= high


@pytest.mark.parametrize("seed", range(5))
def test_children_are_allotted_by_energy(seed):
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, 40, 30)
    energies = rng.random(30) ** 4 * (rows > 0)
    k = int(rng.integers((rows > 0).sum(), rows.sum()))
    found = allot(k, energies, rows)
    assert found.sum() == k
    assert (found[rows > 0] >= 1).all()
    assert (found <= rows).all()
    free = (found < rows) & (found > 1)
    share = energies[free] / energies[free].sum()
    assert (np.abs(found[free] / found[free].sum() - share) < 0.2).all()


def test_more_clusters_than_rows_of_weight():
    assert allot(7, np.array([1.0, 0.0]), np.array([2, 0])).tolist() == [7, 0]


def test_numbers_of_levels():
    assert level_sizes(200, "auto") == [200]
    assert level_sizes(5000, "auto") == [71, 5000]
    assert level_sizes(10**6, "auto") == [100, 10_000, 10**6]


def test_cells_that_collapse_to_one_point():
    """Rows in few places, many of them equal: no cluster is empty while there are distinct rows enough."""
    rng = np.random.default_rng(0)
    rows = np.repeat(rng.normal(size=(300, 3)), rng.integers(1, 9, 300), axis=0)
    rows = np.concatenate([rows, np.tile(rows[:1], (2000, 1))])
    model = HierarchicalKMeans(280, n_levels=2, random_state=0).fit(rows)
    assert len(np.unique(model.labels_)) == 280
    with pytest.warns(UserWarning, match=r"Number of distinct clusters \(300\) found smaller than n_clusters \(310\)"):
        HierarchicalKMeans(310, n_levels=2, random_state=0).fit(rows)


def test_a_cluster_in_two_places_gets_another_centroid():
    """One centroid between two groups and two in a third group are a fixed point of Lloyd's algorithm, but not of ours."""
    rows, group = blobs(900, 3, 9)
    for seed in range(5):
        model = HierarchicalKMeans(9, n_levels=2, random_state=seed).fit(rows)
        assert adjusted_rand_score(group, model.labels_) > 0.95


def test_set_centroids_are_compared_exactly(model):
    changed = HierarchicalKMeans(150, **OPTIONS).fit(X)
    changed.cluster_centers_ = changed.cluster_centers_[::-1].copy()
    np.testing.assert_array_equal(changed.predict(X), changed.predict(X, exact=True))


def test_saved_models_predict_alike(tmp_path, model):
    shoal.save(model, tmp_path / "model.npz")
    loaded = shoal.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(loaded.predict(X), model.labels_)
    np.testing.assert_array_equal(loaded.labels_at(0), model.labels_at(0))
    assert loaded.summary_ == model.summary_


def test_records_of_the_tree():
    records = []
    HierarchicalKMeans(100, n_levels=3, random_state=0, callback=records.append).fit(X)
    levels = [record for record in records if "level" in record]
    assert [record["level"] for record in levels] == [1, 2, 3]
    assert levels[-1]["clusters"] == 100
    energies = [record["energy"] for record in levels]
    assert energies == sorted(energies, reverse=True)
