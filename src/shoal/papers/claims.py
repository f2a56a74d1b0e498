"""What a paper claims, as data, and what a run has to say about it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from ..report.words import number

HOLDS, PARTLY, FAILS, UNTRIED = "holds", "holds in part", "does not hold here", "not tried in this run"
MANY, DIGITS = 3, 4  # measurements that are told one by one; digits of each

Measured = Mapping[str, float]


class Check(NamedTuple):
    """A measurement by its name, and where it has to lie. It may have been made in several cases, as "mnist: its name"."""

    name: str
    least: float = -math.inf
    most: float = math.inf
    cases: tuple[str, ...] = ()  # that all have to be measured: their names, or how these begin

    def values(self, measured: Measured) -> dict[str, float]:
        return {key: value for key, value in measured.items() if key == self.name or key.endswith(f": {self.name}")}

    def missing(self, measured: Measured) -> list[str]:
        """What ought to have been measured, and was not."""
        there = self.values(measured)
        lack = [case for case in self.cases if not any(key.startswith(case) for key in there)]
        return [f"{self.name} ({', '.join(lack)})" if lack else self.name] if lack or not there else []

    def case(self, key: str) -> str:
        """That a measurement was made in, by its key."""
        return key.removesuffix(self.name).removesuffix(": ")

    def met_by(self, value: float) -> bool:
        return self.least <= value <= self.most

    @property
    def range(self) -> str:
        if self.least == self.most:
            return f"exactly {number(self.least)}"
        if math.isinf(self.least):
            return f"at most {number(self.most)}"
        return f"at least {number(self.least)}" + ("" if math.isinf(self.most) else f", at most {number(self.most)}")

    def told(self, value: float) -> str:
        """A value, with as many digits as it takes to see whether it is in range."""
        if self.met_by(value):
            return number(value, DIGITS)
        near = [limit for limit in (self.least, self.most) if number(limit, DIGITS) == number(value, DIGITS)]
        return f"{number(value, 2 * DIGITS if near else DIGITS)} (missed)"


class Claim(NamedTuple):
    """It holds if all its checks are met, in part if some are."""

    key: str
    where: str  # in the paper
    statement: str
    published: str  # the paper's number, or what it says
    checks: tuple[Check, ...]


class Verdict(NamedTuple):
    claim: Claim
    word: str
    reason: str
    measured: dict[str, float]


def judge(claim: Claim, measured: Measured) -> Verdict:
    """What the measurements say. What nobody has measured says nothing."""
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
    """A measurement in words: what it has to be, and what it was, case by case; of many cases, from where to where."""
    good = [value for value in values.values() if check.met_by(value)]
    if len(values) > MANY:
        span = f"from {number(min(values.values()), DIGITS)} to {number(max(values.values()), DIGITS)}"
        missed = [check.case(key) for key, value in values.items() if not check.met_by(value)]
        but = f", but not by {', '.join(missed)}" if 0 < len(missed) <= MANY else ""
        return f"{check.name} (should be {check.range}): {span}, met by {len(good)} of {len(values)}{but}"
    told = [": ".join(filter(None, [check.case(key), check.told(value)])) for key, value in values.items()]
    return f"{check.name} (should be {check.range}): {', '.join(told)}"


def document(verdict: Verdict) -> dict[str, Any]:
    """As `claims.json` has it."""
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
