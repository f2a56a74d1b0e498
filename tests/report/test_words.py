"""Sentences about clusters, in the units of the table."""

import numpy as np
import pytest

import shoal
from shoal.data.preprocessing import ColumnEncoding, Preprocessing
from shoal.report import gather, words
from shoal.report.column_moments import column_moments
from shoal.report.facts import Trait
from shoal.report.page import heat
from shoal.report.profile import dominant_columns


@pytest.mark.parametrize(
    ("trait", "says"),
    [
        (Trait("income", 38_700, 70_364, -1), "38,700, 45% below average"),
        (Trait("income", 90.0, 60.0, 1), "90, 50% above average"),
        (Trait("visits", 30.0, 6.0, 1), "30, 5 times the average"),
        (Trait("balance", -3.0, 6.0, -1), "−3, overall 6"),
        (Trait("balance", 3.0, -6.0, 1), "3, overall −6"),
        (Trait("year", 2001.0, 2000.0, 1), "2,001, overall 2,000"),
        (Trait("plan=gold", 0.92, 0.48, 1, True), "92%, overall 48%"),
        (Trait("x", float("nan"), 1.0, 1), "–, overall 1"),
    ],
)
def test_contrast(trait, says):
    assert words.contrast(trait) == says


@pytest.mark.parametrize(("z", "name"), [(0.2, "h0"), (-0.6, "h-1"), (2.4, "h2"), (-9.0, "h-3"), (float("nan"), "h0")])
def test_heat(z, name):
    assert heat(z) == name


def test_means_are_in_the_units_of_the_table():
    rng = np.random.default_rng(0)
    X = np.c_[rng.normal(0, 1, 90) + 1000 * (np.arange(90) % 3), np.arange(90) % 2]
    model = shoal.Standardized(shoal.KMeans(3, random_state=0)).fit(X)
    model.preprocessing_ = Preprocessing((ColumnEncoding("income", "number"), ColumnEncoding("member", "boolean")))
    facts = gather(model, X)
    for place, column in enumerate(facts.columns):
        assert column.is_share is bool(place)
        assert column.mean == pytest.approx(X[:, place].mean())
        expected = [X[model.labels_ == cluster.number, place].mean() for cluster in facts.clusters]
        np.testing.assert_allclose(column.means, expected, rtol=1e-9)
        np.testing.assert_allclose(column.z_scores, (np.array(expected) - X[:, place].mean()) / X[:, place].std(), rtol=1e-9)
    assert facts.dominant == ()
    assert "of 90 rows in standardized columns)" in words.verdict(facts)


def test_a_column_that_decides_alone_is_said_in_the_verdict():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 4)) * [1, 1, 1000, 1]
    facts = gather(shoal.KMeans(2, random_state=0).fit(X), X)
    assert facts.dominant == ("column 2",)
    assert words.verdict(facts).endswith(", almost only by column 2).")
    assert any("column 2 makes up most of the variance" in note for note in words.notes(facts))
    assert dominant_columns(column_moments(X[:, [0, 1, 3]])) == []
    assert dominant_columns(column_moments(np.ones((5, 2)))) == []


def test_small_clusters_are_named():
    X = np.r_[np.zeros((100, 1)), np.ones((100, 1)), np.full((2, 1), 50.0)] + np.linspace(0, 0.01, 202)[:, None]
    facts = gather(shoal.KMeans(3, init=[[0.0], [1.0], [50.0]]).fit(X), X)
    assert any("1 cluster is far smaller than the others, below 5%" in note for note in words.notes(facts))
