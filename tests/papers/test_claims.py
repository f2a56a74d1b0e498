"""Verdicts on claims from measurements, and their wording."""

import json
import math

import numpy as np
import pytest

from shoal.papers.claims import FAILS, HOLDS, PARTLY, UNDECIDED, UNTRIED, Check, Claim, both, document, interval, judge


def claim(*checks):
    return Claim("key", "Figure 1", "Ours is faster.", "10 times", checks)


@pytest.mark.parametrize(
    ("measured", "word"),
    [
        ({"a": 1.0, "b": 5.0}, HOLDS),
        ({"a": 1.0, "b": 1.0}, PARTLY),
        ({"a": 3.0, "b": 1.0}, FAILS),
        ({"a": math.nan, "b": 1.0}, FAILS),
        ({"a": 1.0}, UNDECIDED),  # a missing measurement may change the verdict
        ({"a": 3.0}, UNDECIDED),
        ({"a": [1.0, 1.5, 1.9], "b": 5.0}, HOLDS),
        ({"a": [1.0, 1.5, 2.1], "b": 5.0}, UNDECIDED),  # the interval straddles the limit
        ({"a": [2.1, 2.5, 3.0], "b": [1.0, 3.0]}, FAILS),
        ({"a": [1.0, 1.5, 2.1], "b": 1.0}, UNDECIDED),  # fails or holds in part
        ({"a": [2.1, 2.5], "b": [4.0, 4.5]}, PARTLY),
        ({"a": [1.0], "b": 5.0}, UNDECIDED),  # one seed decides nothing
        ({"a": [0.0, math.inf], "b": 5.0}, UNDECIDED),
        ({}, UNTRIED),
        ({"x": 1.0}, UNTRIED),
    ],
)
def test_a_claim_holds_if_all_its_checks_do(measured, word):
    assert judge(claim(Check("a", most=2.0), Check("b", least=4.0)), measured).word == word


def test_a_measurement_may_be_made_in_several_cases():
    verdict = judge(claim(Check("speed", least=2.0)), {"mnist: speed": 3.0, "sift: speed": 1.0, "speed of mnist": 0.0})
    assert verdict.word == PARTLY
    assert verdict.measured == {"mnist: speed": 3.0, "sift: speed": 1.0}
    assert verdict.reason == "speed (required: at least 2): mnist: 3, sift: 1 (not met)"


def test_a_near_miss_is_shown_with_enough_digits():
    assert judge(claim(Check("a", most=1.0)), {"a": 1.0000123}).reason == "a (required: at most 1): 1.0000123 (not met)"
    assert judge(claim(Check("a", most=1.0)), {}).reason == "not measured in this run"


def test_many_cases_are_summarized():
    verdict = judge(claim(Check("ratio", most=1.0)), {f"epoch {t}: ratio": t / 4 for t in range(1, 6)})
    assert verdict.reason == "ratio (required: at most 1): 0.25 to 1.25, met in 4 of 5 cases, not met in epoch 5"


def test_ranges_in_words():
    assert Check("a", 2, 2).range == "exactly 2"
    assert Check("a", -1, 1).range == "at least −1, at most 1"
    assert Check("a", least=3).range == "at least 3"


def test_a_verdict_as_json():
    found = json.loads(json.dumps(document(judge(claim(Check("a", least=1.0)), {"a": math.inf})), allow_nan=False))
    assert found == {
        "key": "key",
        "where": "Figure 1",
        "claim": "Ours is faster.",
        "published": "10 times",
        "arm": "",
        "measured": {"a": None},
        "values": {},
        "intervals": {},
        "verdict": HOLDS,
        "reason": "a (required: at least 1): ∞",
    }


def test_all_cases_must_be_measured():
    """A claim that holds in all measured cases is undecided if some cases were not measured."""
    needs = claim(Check("speed", least=2.0, cases=("mnist", "sift")))
    verdict = judge(needs, {"mnist, k = 2: speed": 3.0})
    assert verdict.word == UNDECIDED
    assert verdict.reason.endswith("speed (sift): not measured")
    assert judge(needs, {"mnist: speed": 3.0, "sift: speed": 3.0}).word == HOLDS
    assert judge(needs, {}).word == UNTRIED


def test_intervals_cover_the_median():
    """In nine of ten samples or more; with fewer than five seeds the range is all there is."""
    rng = np.random.default_rng(0)
    for n in (5, 7, 10, 20):
        covered = [low <= 0 <= high for low, high in (interval(list(rng.normal(size=n))) for _ in range(400))]
        assert np.mean(covered) >= 0.87
    assert interval([3.0, 1.0, 2.0]) == (1, 3)
    assert interval([1.0]) == (-math.inf, math.inf)
    assert interval(2.0) == (2, 2)
    low, high = interval(list(np.arange(20.0)))
    assert 0 < low < 9.5 < high < 19


def test_values_of_all_seeds_are_recorded():
    verdict = judge(claim(Check("a", least=1.0)), {"mnist: a": [3.0, 1.0, math.inf]})
    assert verdict.reason == "a (required: at least 1): mnist: 3 [1 to ∞]"
    found = document(verdict)
    assert found["measured"] == {"mnist: a": 3.0}
    assert found["values"] == {"mnist: a": [3.0, 1.0, None]}
    assert found["intervals"] == {"mnist: a": [1.0, None]}
    reasons = [judge(claim(Check("a", most=2.0)), {"a": values}).reason for values in ([1.0], [1.0, 3.0])]
    assert [reason.partition(": ")[2].partition("): ")[2] for reason in reasons] == ["1 [one seed] (open)", "2 [1 to 3] (open)"]


def test_arms_are_judged_separately():
    one, other = both("speed", "Figure 2", "{arm} is faster.", "twice", Check("speed-up of {arm}", least=2.0))
    assert (one.key, other.key) == ("speed-letter", "speed-shoal")
    measured = {"speed-up of the letter": 3.0, "speed-up of Shoal": 1.0}
    assert [judge(each, measured).word for each in (one, other)] == [HOLDS, FAILS]
    assert one.statement == "the letter is faster."
