"""Verdicts on claims from measurements, and their wording."""

import json
import math

import pytest

from shoal.papers.claims import FAILS, HOLDS, PARTLY, UNTRIED, Check, Claim, document, judge


def claim(*checks):
    return Claim("key", "Figure 1", "Ours is faster.", "10 times", checks)


@pytest.mark.parametrize(
    ("measured", "word"),
    [
        ({"a": 1.0, "b": 5.0}, HOLDS),
        ({"a": 1.0, "b": 1.0}, PARTLY),
        ({"a": 3.0, "b": 1.0}, FAILS),
        ({"a": math.nan, "b": 1.0}, FAILS),
        ({"a": 1.0}, PARTLY),  # a missing measurement prevents a full confirmation
        ({"a": 3.0}, FAILS),
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
        "measured": {"a": None},
        "verdict": HOLDS,
        "reason": "a (required: at least 1): ∞",
    }


def test_all_cases_must_be_measured():
    """A claim that holds in all measured cases holds in part if some cases were not measured."""
    needs = claim(Check("speed", least=2.0, cases=("mnist", "sift")))
    verdict = judge(needs, {"mnist, k = 2: speed": 3.0})
    assert verdict.word == PARTLY
    assert verdict.reason.endswith("speed (sift): not measured")
    assert judge(needs, {"mnist: speed": 3.0, "sift: speed": 3.0}).word == HOLDS
    assert judge(needs, {}).word == UNTRIED
