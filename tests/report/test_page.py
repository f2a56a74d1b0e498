"""Pages: their text, escaping of user text, size limit and atomic writes."""

import base64
import hashlib
import re

import numpy as np
import pytest

import shoal
from shoal.report import Curve, Options, Origin, Point, Trial, gather, page, write_compare, write_fit, write_sweep
from tests.report.hostile import PAYLOADS
from tests.report.skeleton import Skeleton
from tests.strategies import blobs, cloud

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
X, Y = blobs(300, 4, 5)
MODEL = shoal.KMeans(5, random_state=0).fit(X)


def fit_page(tmp_path, facts):
    write_fit(tmp_path / "report.html", facts)
    return (tmp_path / "report.html").read_text("utf-8")


def trial(name, stopped="converged"):
    curve = Curve(np.array([0.1, 0.2]), np.array([10.0, 20.0]), np.array([5.0, 4.0]))
    return Trial(name, curve, 4.0, 0.2, 2, stopped)


def test_a_report_shows_the_facts(tmp_path):
    origin = Origin("Blobs", "shoal fit blobs.npy -k 5", None, "blobs.npy", "sha256:abc", "2026-01-01")
    text = Skeleton(fit_page(tmp_path, gather(MODEL, X, Options(columns=list("abcd")), origin, ["Beware of this."]))).text
    for words in (
        "Blobs", "5 clusters in 300 rows of 4 columns, with 60 to 60 rows per cluster", "KMeans converged after",
        "well separated",
        "Beware of this.", "shoal fit blobs.npy -k 5", "blobs.npy", "sha256:abc", "2026-01-01", "Seed 0",
        f"shoal {shoal.__version__}", "Energy over time", "Energy over rows processed", "Cluster sizes", "Map",
        "300 rows sampled at random", "Distinctive columns",
    ):  # fmt: skip
        assert words in text
    for cluster in gather(MODEL, X).clusters:
        assert f"Cluster {cluster.number}" in text
        assert str(cluster.nearest[0].number) in text


def test_warnings_derived_from_the_results(tmp_path):
    rows = np.concatenate([cloud(299, 4), [[1e3] * 4]])
    model = shoal.KMeans(2, max_iter=1, tol=0, random_state=0).fit(rows)
    text = Skeleton(fit_page(tmp_path, gather(model, rows))).text
    assert "1 cluster with a single row" in text
    assert "One cluster holds 100% of the rows" in text
    with pytest.warns(Warning, match="distinct"):
        few = shoal.KMeans(3, random_state=0).fit(np.ones((9, 2)))
    assert "2 of 3 clusters are empty" in Skeleton(fit_page(tmp_path, gather(few, np.ones((9, 2))))).text


def test_images_are_drawn(tmp_path):
    found = fit_page(tmp_path, gather(MODEL, X, Options(image=(2, 2))))
    assert found.count('src="data:image/png;base64,') == 5 * 6
    assert 'alt="Centroid of cluster 0"' in found


def test_a_comparison_names_the_best_and_the_fastest(tmp_path):
    fast = trial("fast")._replace(energy=4.02, seconds=0.1)
    write_compare(
        tmp_path / "c.html", [trial("slow"), fast, trial("broken")._replace(energy=np.nan)], Origin(command="shoal compare")
    )
    text = Skeleton((tmp_path / "c.html").read_text("utf-8")).text
    assert "slow reached the lowest energy, 4, in 200 ms; fast came within 0.5% of it in 100 ms, 2 times as fast." in text
    assert "shoal compare" in text
    assert text.index("slow ") < text.index("broken")


@pytest.mark.parametrize(("least", "other", "above"), [(4.0, 4.0003, "+0.01%"), (0.0, 0.0, "+0.00%"), (0.0, 3.0, "∞")])
def test_nearly_equal_energies(tmp_path, least, other, above):
    trials = [trial("slow")._replace(energy=least), trial("fast")._replace(energy=other, seconds=0.1)]
    write_compare(tmp_path / "c.html", trials)
    text = Skeleton((tmp_path / "c.html").read_text("utf-8")).text
    assert above in text
    assert ("fast reached the same energy in 100 ms, 2 times as fast." in text) == (above != "∞")


def test_a_sweep_names_the_knee_or_says_there_is_none(tmp_path):
    energies, silhouettes = (100, 60, 10, 9, 8.4, 8, 7.7, 7.5), (None, 0.3, 0.8, 0.5, 0.5, 0.5, 0.5, 0.5)
    points = [Point(k + 1, e, s, 0.1) for k, (e, s) in enumerate(zip(energies, silhouettes, strict=True))]
    write_sweep(tmp_path / "s.html", points[::-1])
    text = Skeleton((tmp_path / "s.html").read_text("utf-8")).text
    assert "knee at k = 3" in text
    assert "highest at k = 3 (0.80)" in text
    assert "knee of the energy curve; highest silhouette" in text
    write_sweep(tmp_path / "s.html", [Point(k, 100 / k) for k in range(1, 9)])
    assert "There is no clear knee:" in Skeleton((tmp_path / "s.html").read_text("utf-8")).text


def test_a_sweep_reports_the_uncertainty_of_its_knee(tmp_path):
    counts, energies = (1, 2, 5, 8, 13, 20, 30), (100, 60, 10, 9, 8.4, 8, 7.7)
    points = [Point(k, e, stopped="time_budget" if k < 5 else "converged") for k, e in zip(counts, energies, strict=True)]
    write_sweep(tmp_path / "s.html", points)
    text = Skeleton((tmp_path / "s.html").read_text("utf-8")).text
    assert "knee at k = 5, or else between 2 and 8, where not every k was tried" in text
    assert "slowly after it. 2 of 7 fits reached their time limit, so the knee may be wrong." in text
    assert text.count("time limit") == 1 + 2  # in the summary and in the status of two fits


def test_the_summary_contains_the_total_time(tmp_path):
    found = Skeleton(fit_page(tmp_path, gather(MODEL, X, origin=Origin(seconds=1234.5)))).text
    assert f"after {MODEL.n_iter_} iterations and 20.6 min" in found


def test_steps_without_an_energy_are_skipped(tmp_path):
    """Some, all or none of the energies are finite: no chart contains NaN."""
    history = [{"seconds": 0.1 * i, "rows": 10, "energy": e} for i, e in enumerate((np.nan, 3.0, None, np.inf, 2.0))]
    none = [{"seconds": np.nan, "rows": 10, "energy": np.nan}] * 3
    curves = [Curve.of(history), Curve.of(none), Curve(np.full(4, np.nan), np.arange(4.0), np.full(4, np.nan))]
    for curve, energy in zip(curves, (2.0, np.nan, None), strict=True):
        text = fit_page(tmp_path, gather(MODEL, X)._replace(curve=curve, energy=energy))
        assert not re.search(r'(d|x|y)="[^"]*nan', text)
    write_compare(tmp_path / "c.html", [Trial("a", curve, np.nan, np.nan) for curve in curves])
    write_sweep(tmp_path / "s.html", [Point(k, np.nan, np.nan, np.nan) for k in range(1, 5)])
    for name in "cs":
        assert not re.search(r'(d|x|y)="[^"]*nan', (tmp_path / f"{name}.html").read_text("utf-8"))


@pytest.mark.parametrize("write", [write_compare, write_sweep])
def test_empty_reports(tmp_path, write):
    write(tmp_path / "e.html", [])
    assert "tested" in (tmp_path / "e.html").read_text("utf-8") or "No method produced" in (tmp_path / "e.html").read_text(
        "utf-8"
    )


def facts_with_text(text):
    """Return facts and an origin in which every field that a user controls is this text."""
    origin = Origin(text, text, 1, text, text, text, {text: text}, {text: text})
    options = Options([text] * 300, [text] * 300, [text] * 4)
    facts = gather(MODEL, X, options, origin, [text])
    return facts._replace(method=text, summary=text, stopped=text), origin


PLAIN = "plain"


def write_pages(folder, text):
    facts, origin = facts_with_text(text)
    write_fit(folder / "fit.html", facts)
    write_compare(folder / "compare.html", [trial(text, text), trial(text, text)], origin)
    write_sweep(folder / "sweep.html", [Point(2, 2.0, stopped=text), Point(3, 1.0)], origin)
    return [(folder / f"{kind}.html").read_bytes() for kind in ("fit", "compare", "sweep")]


@pytest.fixture(scope="module")
def plain_tags(tmp_path_factory):
    return [Skeleton(found.decode()).tags for found in write_pages(tmp_path_factory.mktemp("plain"), PLAIN)]


@pytest.mark.parametrize("text", [text for text in PAYLOADS if text.strip()], ids=lambda text: str(PAYLOADS.index(text)))
def test_user_text_adds_no_markup(tmp_path, plain_tags, text):
    for found, tags in zip(write_pages(tmp_path, text), plain_tags, strict=True):
        assert Skeleton(found.decode()).tags == tags
        assert len(found) < page.MAX_PAGE_BYTES


@pytest.mark.parametrize("kind", ["fit", "compare", "sweep"])
def test_the_policy_allows_only_the_style_and_the_script_of_the_page(kind, tmp_path):
    write_pages(tmp_path, PLAIN)
    text = (tmp_path / f"{kind}.html").read_text("utf-8")
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text).group(1)
    assert policy.startswith("default-src 'none'; ")
    for tag in ("style", "script"):
        (inside,) = re.findall(f"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert "unsafe" not in policy
    assert "http" not in text.replace("http-equiv", "")
    assert not re.search(r"\s(style|on\w+)=", text)


def test_ten_thousand_clusters_fit_on_a_page(tmp_path):
    rows = cloud(12_000, 8, dtype=np.float32)
    model = shoal.KMeans(10_000, init=rows[:10_000], max_iter=1).fit(rows)
    long = ["<&" * 500] * len(rows)
    facts = gather(model, rows, Options(ids=long, texts=long, image=(2, 4)))
    text = fit_page(tmp_path, facts)
    assert len(text.encode()) < page.MAX_PAGE_BYTES
    assert int(re.search(r"Showing the (\d+) largest of 10,000 clusters", text).group(1)) >= 100


def test_many_methods_and_many_numbers_fit_on_a_page(tmp_path):
    write_compare(tmp_path / "c.html", [trial("&" * 9_000) for _ in range(5000)])
    write_sweep(tmp_path / "s.html", [Point(k, 1e6 / k, 0.5) for k in range(1, 20_000)])
    assert (tmp_path / "c.html").stat().st_size < page.MAX_PAGE_BYTES
    assert (tmp_path / "s.html").stat().st_size < page.MAX_PAGE_BYTES


def test_a_failed_write_leaves_the_old_page(tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    path.write_text("old")

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        write_fit(path, gather(MODEL, X))
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]
