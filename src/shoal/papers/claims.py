"""Claims of a paper as data, and verdicts on them from measurements."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from ..report.words import number

HOLDS, PARTLY, FAILS, UNTRIED = "holds", "holds in part", "does not hold here", "not tested"
MAX_LISTED = 3  # measurements listed one by one in a verdict; more are summarized by their range
DIGITS = 4  # significant digits of a measurement

Measured = Mapping[str, float]


class Check(NamedTuple):
    """Required range of a measurement.

    A measurement made in several cases has one key per case, which ends in the name of the check: "mnist: speed-up".
    """

    name: str
    least: float = -math.inf
    most: float = math.inf
    cases: tuple[str, ...] = ()  # cases that must all be measured: their names or prefixes of these

    def values(self, measured: Measured) -> dict[str, float]:
        """Return the measurements of this check, by key."""
        return {key: value for key, value in measured.items() if key == self.name or key.endswith(f": {self.name}")}

    def missing(self, measured: Measured) -> list[str]:
        """Return the name of the check, with the cases that were not measured; empty if nothing is missing."""
        there = self.values(measured)
        lack = [case for case in self.cases if not any(key.startswith(case) for key in there)]
        return [f"{self.name} ({', '.join(lack)})" if lack else self.name] if lack or not there else []

    def case(self, key: str) -> str:
        """Return the case of a measurement from its key."""
        return key.removesuffix(self.name).removesuffix(": ")

    def met_by(self, value: float) -> bool:
        """Return whether a value is in the required range."""
        return self.least <= value <= self.most

    @property
    def range(self) -> str:
        """Required range in words."""
        if self.least == self.most:
            return f"exactly {number(self.least)}"
        if math.isinf(self.least):
            return f"at most {number(self.most)}"
        return f"at least {number(self.least)}" + ("" if math.isinf(self.most) else f", at most {number(self.most)}")

    def format_value(self, value: float) -> str:
        """Format a value, with enough digits to distinguish it from a limit that it misses."""
        if self.met_by(value):
            return number(value, DIGITS)
        near = [limit for limit in (self.least, self.most) if number(limit, DIGITS) == number(value, DIGITS)]
        return f"{number(value, 2 * DIGITS if near else DIGITS)} (not met)"


class Claim(NamedTuple):
    """Claim of a paper. It holds if all its checks are met, and in part if some are."""

    key: str
    where: str  # figure, table or section of the paper
    statement: str
    published: str  # result or statement in the paper
    checks: tuple[Check, ...]


class Verdict(NamedTuple):
    """Claim with its verdict, the reason in words and the measurements."""

    claim: Claim
    word: str
    reason: str
    measured: dict[str, float]


def judge(claim: Claim, measured: Measured) -> Verdict:
    """Return the verdict of the measurements on a claim. Missing measurements prevent a full confirmation."""
    found = [(check, check.values(measured)) for check in claim.checks]
    met = [check.met_by(value) for check, values in found for value in values.values()]
    word = UNTRIED if not met else HOLDS if all(met) else PARTLY if any(met) else FAILS
    reason = "; ".join(_reason(check, values) for check, values in found if values)
    missing = [name for check in claim.checks for name in check.missing(measured)]
    if word == UNTRIED:
        reason = "not measured in this run"
    elif missing:
        word = PARTLY if word == HOLDS else word
        reason = "; ".join([reason, *(f"{name}: not measured" for name in missing)])
    return Verdict(claim, word, reason, {key: value for _, values in found for key, value in values.items()})


def _reason(check: Check, values: dict[str, float]) -> str:
    """Describe a check: its required range and the values of all cases, or their range if there are many."""
    good = [value for value in values.values() if check.met_by(value)]
    if len(values) > MAX_LISTED:
        span = f"{number(min(values.values()), DIGITS)} to {number(max(values.values()), DIGITS)}"
        missed = [check.case(key) for key, value in values.items() if not check.met_by(value)]
        but = f", not met in {', '.join(missed)}" if 0 < len(missed) <= MAX_LISTED else ""
        return f"{check.name} (required: {check.range}): {span}, met in {len(good)} of {len(values)} cases{but}"
    values_text = [": ".join(filter(None, [check.case(key), check.format_value(value)])) for key, value in values.items()]
    return f"{check.name} (required: {check.range}): {', '.join(values_text)}"


def document(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict as an entry of `claims.json`."""
    claim = verdict.claim
    return {
        "key": claim.key,
        "where": claim.where,
        "claim": claim.statement,
        "published": claim.published,
        "measured": {key: value if math.isfinite(value) else None for key, value in verdict.measured.items()},
        "verdict": verdict.word,
        "reason": verdict.reason,
    }
