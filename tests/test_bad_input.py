"""Invalid input raises an error that names the argument or the place."""

from functools import partial

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import NotFittedError

from shoal import KMeans, metrics
from tests.strategies import cloud

GOOD = cloud(20, 3)
METHODS = ("fit", "predict", "transform", "score", "fit_predict", "fit_transform")


def rows_with(value, row=7, column=1, dtype=np.float64):
    """Return good rows with one entry replaced."""
    X = GOOD.astype(dtype)
    X[row, column] = value
    return X


def zero_row(row=7):
    X = GOOD.copy()
    X[row] = 0
    return X


def to_sparse(X, layout=sparse.csr_array):
    return layout(X)


def call(method, X, good=GOOD, **options):
    """Call a method on X; those other than fits are called on a model fitted to good rows."""
    model = KMeans(n_clusters=3, random_state=0, **options)
    return getattr(model if method.startswith("fit") else model.fit(good), method)(X)


def table(package, columns):
    """Return a table of the package; skip the test if it is not installed."""
    frames = pytest.importorskip(package)
    return (frames.table if package == "pyarrow" else frames.DataFrame)(columns)


class Shaped:
    """Object with a shape but without rows."""

    shape = (20, 3)


def beyond_float64(layout=np.asarray):
    return layout(rows_with(np.longdouble(10) ** 400, dtype=np.longdouble))


PLACE = r"row 7, column 1"
BAD_ROWS = {
    "NaN": (lambda: rows_with(np.nan), rf"X.*NaN.*{PLACE}"),
    "infinity": (lambda: rows_with(np.inf), rf"X.*infinity.*{PLACE}"),
    "minus infinity": (lambda: rows_with(-np.inf), rf"X.*infinity.*{PLACE}"),
    "both infinities": (lambda: np.tile([-np.inf, np.inf, 0.0], (20, 1)), "X.*infinity.*row 0, column 0"),
    "NaN in float32": (lambda: rows_with(np.nan, dtype=np.float32), rf"X.*NaN.*{PLACE}"),
    "NaN in float16": (lambda: rows_with(np.nan, dtype=np.float16), rf"X.*NaN.*{PLACE}"),
    "NaN in Fortran order": (lambda: np.asfortranarray(rows_with(np.nan)), rf"X.*NaN.*{PLACE}"),
    "NaN in CSR": (lambda: to_sparse(rows_with(np.nan)), rf"X.*NaN.*{PLACE}"),
    "NaN in CSC": (lambda: to_sparse(rows_with(np.nan), sparse.csc_array), rf"X.*NaN.*{PLACE}"),
    "infinity in COO": (lambda: to_sparse(rows_with(np.inf), sparse.coo_array), rf"X.*infinity.*{PLACE}"),
    "NaN in a list": (lambda: rows_with(np.nan).tolist(), rf"X.*NaN.*{PLACE}"),
    "complex": (lambda: GOOD + 1j, r"\bX\b.*[Cc]omplex"),
    "complex CSR": (lambda: to_sparse(GOOD + 1j), r"\bX\b.*[Cc]omplex"),
    "strings": (lambda: np.full((20, 3), "a"), r"\bX\b.*string"),
    "objects": (lambda: np.full((20, 3), object()), r"\bX\b.*(object|number)"),
    "dates": (lambda: np.full((20, 3), "2020-01-01", "datetime64[D]"), r"\bX\b.*datetime64"),
    "no rows": (lambda: GOOD[:0], r"\bX\b.*0 sample"),
    "no columns": (lambda: GOOD[:, :0], r"\bX\b.*0 feature"),
    "one dimension": (lambda: GOOD[0], r"\bX\b.*2D array, got 1D"),
    "three dimensions": (lambda: GOOD[None], r"\bX\b.*dim 3"),
    "a number": (lambda: 3.0, r"\bX\b.*2D array, got scalar"),
    "nothing": (lambda: None, r"\bX\b.*None"),
    "a mask": (lambda: np.ma.masked_array(GOOD, GOOD[7, 1] == GOOD), rf"\bX\b.*mask.*{PLACE}"),
    "masks in a list": (lambda: list(np.ma.masked_array(GOOD, GOOD[7, 1] == GOOD)), r"\bX\b.*mask.*row 7"),
    "ragged": (lambda: [[1.0, 2.0, 3.0], [1.0]], r"\bX\b.*inhomogeneous"),
    "beyond float64": (beyond_float64, rf"X.*infinity.*{PLACE}"),
    "beyond float64 in CSR": (lambda: beyond_float64(sparse.csr_array), rf"X.*infinity.*{PLACE}"),
    "a shape and nothing else": (Shaped, r"\bX\b.*2D array, got scalar"),
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", BAD_ROWS)
def test_invalid_rows(method, name):
    make, message = BAD_ROWS[name]
    with pytest.raises((ValueError, TypeError), match=f"(?s){message}"):
        call(method, make())


PACKAGES = pytest.mark.parametrize("package", ["pandas", "polars", "pyarrow"])


@pytest.mark.parametrize("method", METHODS)
@PACKAGES
@pytest.mark.parametrize("value", [None, float("nan"), float("inf")])
def test_invalid_tables(method, package, value):
    columns = {name: GOOD[:, j].tolist() for j, name in enumerate("abc")}
    good = table(package, columns)
    columns["b"][7] = value
    with pytest.raises(ValueError, match=PLACE):
        call(method, table(package, columns), good)


@pytest.mark.parametrize("method", [*METHODS, "energy"])
@PACKAGES
@pytest.mark.parametrize("alone", [True, False])
def test_missing_booleans(method, package, alone):
    columns = {"b": [True, False] * 10} if alone else {"a": GOOD[:, 0].tolist(), "b": [True, False] * 10}
    good = table(package, columns)
    columns["b"][7] = None
    bad = table(package, columns)
    if package == "pandas":
        bad = bad.astype({"b": "boolean"})
    model = KMeans(2) if method.startswith("fit") else KMeans(2).fit(good)
    tell = getattr(model, method) if method in METHODS else partial(metrics.energy, centers=np.eye(2, len(columns)))
    with pytest.raises(ValueError, match=rf"X contains NaN at row 7, column {len(columns) - 1}"):
        tell(bad)


def broken(layout, part, at, value):
    X = layout(GOOD)
    values = getattr(X, part).copy()
    values[at] = value
    setattr(X, part, values)
    return X


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("layout", [sparse.csr_array, sparse.csc_matrix, sparse.bsr_array])
@pytest.mark.parametrize(
    ("part", "at", "value"),
    [
        ("indices", 4, 10**8),
        ("indices", 4, -(10**8)),
        ("indptr", 1, 10**8),
        ("indptr", 1, -(10**8)),
        ("indptr", 0, -4),
        ("indptr", -1, 10**8),
        ("indptr", -1, 0),
    ],
)
def test_invalid_sparse_indices(method, layout, part, at, value):
    with pytest.raises(ValueError, match=r"X is a broken (csr|csc|bsr) matrix.*ind(ex|ices|ptr)"):
        call(method, broken(layout, part, at, value))


def test_lazy_frames():
    polars = pytest.importorskip("polars")
    with pytest.raises(TypeError, match=r"X is a LazyFrame.*collect"):
        KMeans(2).fit(polars.LazyFrame({"a": [1.0, 2.0]}))


ODD_COLUMNS = {
    "text": ["x", "y", "z"],
    "bytes": [b"x", b"y", b"z"],
    "lists": [[1.0, 2.0], [3.0, 4.0], [5.0]],
    "dates": np.array(["2020-01-01", "2020-01-02", "2020-01-03"], "datetime64[ms]"),
    "nothing": [None, None, None],
}


@PACKAGES
@pytest.mark.parametrize("kind", ODD_COLUMNS)
def test_tables_of_unsupported_types(package, kind):
    message = r"X contains NaN at row 0, column 1" if kind == "nothing" else "Column 'b' of X"
    with pytest.raises(ValueError, match=message):
        KMeans(2).fit(table(package, {"a": [1.0, 2.0, 3.0], "b": ODD_COLUMNS[kind]}))


@PACKAGES
def test_columns_of_vectors(package):
    frames = pytest.importorskip(package)
    values = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
    if package == "polars":
        values = frames.Series(values, dtype=frames.Array(frames.Float32, 2))
    with pytest.raises(ValueError, match=r"Column 'emb' of X holds lists: stack it into a 2-D array"):
        KMeans(2).fit(table(package, {"emb": values}))


@PACKAGES
def test_tables_without_rows(package):
    with pytest.raises(ValueError, match=r"0 sample"):
        KMeans(2).fit(table(package, {"a": np.zeros(0), "b": np.zeros(0)}))


@PACKAGES
def test_tables_without_columns(package):
    with pytest.raises(ValueError, match=r"0 (sample|feature)"):
        KMeans(2).fit(table(package, {}))


@pytest.mark.parametrize("row", [0, 19])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
def test_zero_rows_with_cosine_metric(row, method, layout):
    with pytest.raises(ValueError, match=rf"[Rr]ow {row}\b.*zero"):
        call(method, layout(zero_row(row)), metric="cosine")


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
def test_the_row_number_counts_all_blocks(layout):
    X = np.ones((200_000, 2), np.float32)
    X[:100_000] = 2
    X[150_001, 1] = np.nan
    with pytest.raises(ValueError, match="row 150001, column 1"):
        KMeans(2, n_threads=2).fit(layout(X))


def test_range_beyond_float64():
    X = np.array([[-1.7e308], [1.7e308], [0.0]])
    with pytest.raises(ValueError, match="X spreads wider than float64"):
        KMeans(2).fit(X)


BAD_PARAMETERS = {
    "n_clusters": [0, -1, 3.5, "4", None, np.nan, [3], 21, 10**9, True],
    "init": ["kmeans", "", None, 3, 0.5],
    "n_init": [0, -1, 1.5, "many", None, True],
    "max_iter": [0, -1, 1.5, "10", None, np.inf, True],
    "tol": [-1e-9, np.nan, "small", None],
    "time_budget": [0, -1, np.nan, "1s"],
    "algorithm": ["Lloyd", "fast", None, 3],
    "metric": ["manhattan", "l2", None, 3],
    "random_state": [-1, 1.5, "seed"],
    "n_threads": [0, -1, 1.5, "2", True, 10**9],
    "callback": [3, "print"],
    "verbose": [-1, "yes"],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in BAD_PARAMETERS.items() for value in values])
def test_invalid_parameters(name, value):
    with pytest.raises((ValueError, TypeError), match=name):
        KMeans(**{"n_clusters": 3, name: value}).fit(GOOD)


BAD_CENTERS = {
    "too few": (GOOD[:2], r"init has shape \(2, 3\).*n_clusters=3"),
    "too many": (GOOD[:4], r"init has shape \(4, 3\).*n_clusters=3"),
    "too narrow": (GOOD[:3, :2], r"init has shape \(3, 2\).*3 features"),
    "one dimension": (GOOD[0], r"init has shape \(3,\)"),
    "three dimensions": (GOOD[None, :3], r"init has shape \(1, 3, 3\)"),
    "NaN": (rows_with(np.nan, 1, 2)[:3], "init holds nan at row 1, column 2"),
    "infinity": (rows_with(-np.inf, 1, 2)[:3], "init holds -inf at row 1, column 2"),
    "strings": (np.full((3, 3), "a"), "init"),
    "complex": (GOOD[:3] + 1j, "init"),
    "ragged": ([[1.0, 2.0], [1.0], [3.0]], "init"),
    "empty": (np.empty((0, 3)), r"init has shape \(0, 3\)"),
    "a mask": (np.ma.masked_array(GOOD[:3], GOOD[:3] == GOOD[1, 2]), "init has a mask, first at row 1, column 2"),
}


@pytest.mark.parametrize("name", BAD_CENTERS)
def test_initial_centroids(name):
    centers, message = BAD_CENTERS[name]
    with pytest.raises((ValueError, TypeError), match=message):
        KMeans(3, init=centers).fit(GOOD)


@pytest.mark.parametrize("name", BAD_CENTERS)
def test_results_of_callable_init(name):
    centers, _ = BAD_CENTERS[name]
    with pytest.raises((ValueError, TypeError), match="init"):
        KMeans(3, init=lambda X, k, random_state: centers).fit(GOOD)


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
def test_zero_initial_centroids_with_cosine_metric(layout):
    with pytest.raises(ValueError, match=r"init.*(zero|direction)"):
        KMeans(3, init=np.eye(3) - [[1, 0, 0]], metric="cosine").fit(layout(GOOD))


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize(("dtype", "far"), [(np.float32, 1e20), (np.float32, 1e300), (np.float64, 1e160), (np.float64, 1e308)])
def test_initial_centroids_out_of_range(layout, dtype, far):
    with pytest.raises(ValueError, match=r"init row 1 lies so far from the rows of X that float\d\d"):
        KMeans(3, init=rows_with(-far, 1, 2)[:3]).fit(layout(GOOD.astype(dtype)))


BAD_WEIGHTS = {
    "negative": (np.where(np.arange(20) == 4, -1.0, 1.0), r"sample_weight\[4\] is -1.0"),
    "NaN": (np.where(np.arange(20) == 4, np.nan, 1.0), r"sample_weight\[4\] is nan"),
    "infinity": (np.where(np.arange(20) == 4, np.inf, 1.0), r"sample_weight\[4\] is inf"),
    "a sum beyond float64": (np.full(20, 1e308), r"sample_weight goes up to 1e\+308.*divide"),
    "all zero": (np.zeros(20), "sample_weight is zero for every row"),
    "too short": (np.ones(19), r"sample_weight.shape == \(19,\), expected \(20,\)"),
    "too long": (np.ones(21), r"sample_weight.shape == \(21,\), expected \(20,\)"),
    "two dimensions": (np.ones((20, 1)), r"sample_weight.shape == \(20, 1\)"),
    "strings": (["a"] * 20, "sample_weight"),
    "complex": (np.ones(20) + 1j, "sample_weight"),
    "objects": ([object()] * 20, "sample_weight"),
    "a negative number": (-2.0, "sample_weight"),
    "zero": (0, "sample_weight"),
    "a mask": (np.ma.masked_array(np.ones(20), np.arange(20) == 4), "sample_weight has a mask, first at row 4"),
    "too little": (np.where(np.arange(20) == 4, 5e-324, 1.0), r"sample_weight\[4\] is 4.94e-324, too little"),
}


@pytest.mark.parametrize("name", BAD_WEIGHTS)
@pytest.mark.parametrize("method", ["fit", "fit_predict", "score"])
def test_invalid_weights(name, method):
    weights, message = BAD_WEIGHTS[name]
    model = KMeans(3) if method.startswith("fit") else KMeans(3).fit(GOOD)
    with pytest.raises((ValueError, TypeError), match=message):
        getattr(model, method)(GOOD, sample_weight=weights)


@pytest.mark.parametrize("name", BAD_WEIGHTS)
def test_invalid_weights_of_energy(name):
    weights, message = BAD_WEIGHTS[name]
    with pytest.raises((ValueError, TypeError), match=message):
        metrics.energy(GOOD, GOOD[:2], weights)


@pytest.mark.parametrize("method", ["predict", "transform", "score"])
@pytest.mark.parametrize("columns", [1, 2, 4])
@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
def test_wrong_number_of_features(method, columns, layout):
    with pytest.raises(ValueError, match=rf"X has {columns} features, but KMeans is expecting 3 features"):
        call(method, layout(np.ones((5, columns))))


@pytest.mark.parametrize("method", ["predict", "transform", "score"])
def test_methods_before_fit(method):
    with pytest.raises(NotFittedError, match="KMeans"):
        getattr(KMeans(3), method)(GOOD)


def test_projected_needs_dense_rows():
    with pytest.raises(ValueError, match="algorithm='projected' needs dense rows"):
        KMeans(3, algorithm="projected").fit(to_sparse(GOOD))


def test_more_clusters_than_rows():
    with pytest.raises(ValueError, match="n_samples=20 should be >= n_clusters=21"):
        KMeans(21).fit(GOOD)


def test_a_failed_fit_leaves_the_model_unfitted():
    model = KMeans(3)
    with pytest.raises(ValueError, match="NaN"):
        model.fit(rows_with(np.nan))
    with pytest.raises(NotFittedError):
        model.predict(GOOD)


@pytest.mark.parametrize(
    ("X", "centers", "message"),
    [
        (rows_with(np.nan), GOOD[:2], "NaN"),
        (GOOD, rows_with(np.nan)[6:8], "centers holds nan"),
        (GOOD, GOOD[:2, :2], r"centers has shape \(2, 2\): give a 2-D array, with one row of 3 numbers"),
        (GOOD, GOOD[0], r"centers has shape \(3,\): give a 2-D array"),
        (GOOD[0], GOOD[:2], "2D|dim|shape"),
        (GOOD, 3.0, r"centers has shape \(\): give a 2-D array"),
        (GOOD, np.empty((0, 3)), r"centers has shape \(0, 3\)"),
        (GOOD, [[1.0, 2.0, 3.0], [1.0]], "centers must hold real numbers"),
    ],
)
def test_invalid_arguments_of_energy(X, centers, message):
    with pytest.raises((ValueError, TypeError), match=message):
        metrics.energy(X, centers)


@pytest.mark.parametrize(
    ("name", "value"), [("n_threads", 0), ("n_threads", -1), ("n_threads", 1.5), ("n_threads", "2"), ("metric", "manhattan")]
)
def test_invalid_parameters_of_energy(name, value):
    with pytest.raises(ValueError, match=f"'{name}' parameter of energy"):
        metrics.energy(GOOD, GOOD[:2], **{name: value})


def test_energy_of_zero_rows_with_cosine_metric():
    with pytest.raises(ValueError, match="Row 7 of X is all zeros"):
        metrics.energy(zero_row(), GOOD[:2], metric="cosine")
    with pytest.raises(ValueError, match="centers row 1 is all zeros"):
        metrics.energy(GOOD, zero_row(1)[:3], metric="cosine")


BAD_LABELS = {
    "lengths": ([0, 1, 1], [0, 1], "labels_true has 3 labels and labels_pred has 2"),
    "two dimensions": ([[0, 1]], [0, 1], r"labels_true must.*\(1, 2\)"),
    "a number": ([0], 0, r"labels_pred must.*\(\)"),
    "none": ([], [], r"labels_true must.*\(0,\)"),
    "NaN": ([0, 1], [0, np.nan], "labels_pred must.*row 1 is missing"),
    "None": ([0, None], [0, 1], "labels_true must.*row 1 is missing"),
    "NaN among words": (np.array(["a", np.nan], object), [0, 1], "labels_true must.*row 1 is missing"),
    "ragged": ([0, 1], [[0], [0, 1]], "labels_pred must.*inhomogeneous"),
    "of two minds": (np.array(["a", 1], object), [0, 1], "labels_true must"),
}


@pytest.mark.parametrize("metric", ["accuracy", "purity"])
@pytest.mark.parametrize("name", BAD_LABELS)
def test_invalid_labels(metric, name):
    true, pred, message = BAD_LABELS[name]
    with pytest.raises(ValueError, match=message):
        getattr(metrics, metric)(true, pred)
