"""Claims of a paper as data, and verdicts on them from measurements."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import binom

from ..report.words import number

HOLDS, PARTLY, FAILS, UNDECIDED, UNTRIED = "holds", "holds in part", "does not hold here", "undecided", "not tested"
LETTER, SHOAL = "letter", "shoal"  # arms of a race: the algorithm as printed, and Shoal's estimator
MAX_LISTED = 3  # measurements listed one by one in a verdict; more are summarized by their range
DIGITS = 4  # significant digits of a measurement
COVERAGE = 0.9  # of the interval of a median, if there are enough seeds for it

Value = float | Sequence[float]  # a number that does not depend on chance, or one value per seed
Measured = Mapping[str, Value]


def center(value: Value) -> float:
    """Return a number, or the median over the seeds."""
    return float(value) if isinstance(value, int | float) else float(np.median(value))


def interval(value: Value) -> tuple[float, float]:
    """Return the interval of a measurement: the number itself, or an interval of the median that assumes no distribution.

    Its ends are order statistics that cover the median with a probability of 90% or more. With fewer than five seeds no such
    interval exists, and the range is used. A single seed decides nothing.
    """
    if isinstance(value, int | float):
        return float(value), float(value)
    n = len(value)
    if n < 2:
        return -math.inf, math.inf
    left_out = max((r for r in range(n // 2) if 1 - 2 * binom.cdf(r, n, 0.5) >= COVERAGE), default=0)
    ordered = np.sort(value)
    return float(ordered[left_out]), float(ordered[n - 1 - left_out])


class Check(NamedTuple):
    """Required range of a measurement.

    A measurement made in several cases has one key per case, which ends in the name of the check: "mnist: speed-up".
    """

    name: str
    least: float = -math.inf
    most: float = math.inf
    cases: tuple[str, ...] = ()  # cases that must all be measured: their names or prefixes of these

    def values(self, measured: Measured) -> dict[str, Value]:
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

    def decide(self, value: Value) -> bool | None:
        """Return whether the interval of a value lies in the required range; None if it lies partly inside."""
        low, high = interval(value)
        if self.least <= low and high <= self.most:
            return True
        return None if high >= self.least and low <= self.most else False

    @property
    def range(self) -> str:
        """Required range in words."""
        if self.least == self.most:
            return f"exactly {number(self.least)}"
        if math.isinf(self.least):
            return f"at most {number(self.most)}"
        return f"at least {number(self.least)}" + ("" if math.isinf(self.most) else f", at most {number(self.most)}")

    def format_value(self, value: Value) -> str:
        """Format a value with its interval, and with enough digits to distinguish it from a limit that it misses."""
        decided, middle = self.decide(value), center(value)
        near = [limit for limit in (self.least, self.most) if number(limit, DIGITS) == number(middle, DIGITS)]
        text = number(middle, 2 * DIGITS if near and decided is False else DIGITS)
        if not isinstance(value, int | float):
            low, high = (number(end, DIGITS) for end in interval(value))
            text += f" [{low} to {high}]" if len(value) > 1 else " [one seed]"
        return text + {True: "", None: " (open)", False: " (not met)"}[decided]


class Claim(NamedTuple):
    """Claim of a paper. It holds if all its checks are met, and in part if some are met and others are not."""

    key: str
    where: str  # figure, table or section of the paper
    statement: str
    published: str  # result or statement in the paper
    checks: tuple[Check, ...]
    arm: str = ""  # LETTER or SHOAL; empty if the claim is not on one of them


class Verdict(NamedTuple):
    """Claim with its verdict, the reason in words and the measurements."""

    claim: Claim
    word: str
    reason: str
    measured: dict[str, Value]


def for_arms(
    names: Mapping[str, str], key: str, where: str, statement: str, published: str, *checks: Check
) -> tuple[Claim, ...]:
    """Return a claim for each arm; "{arm}" in the statement and the checks is replaced by the name of the arm."""

    def of(arm: str, name: str) -> Claim:
        own = tuple(check._replace(name=check.name.replace("{arm}", name)) for check in checks)
        return Claim(f"{key}-{arm}", where, statement.replace("{arm}", name), published, own, arm)

    return tuple(of(*each) for each in names.items())


def both(key: str, where: str, statement: str, published: str, *checks: Check) -> tuple[Claim, ...]:
    """Return a claim for each of the two arms, "the letter" and "Shoal"."""
    return for_arms({LETTER: "the letter", SHOAL: "Shoal"}, key, where, statement, published, *checks)


def judge(claim: Claim, measured: Measured) -> Verdict:
    """Return the verdict of the measurements on a claim. What is open or missing leaves undecided what it may change."""
    found = [(check, check.values(measured)) for check in claim.checks]
    decided = [check.decide(value) for check, values in found for value in values.values()]
    missing = [name for check in claim.checks for name in check.missing(measured)]
    reason = "; ".join(_reason(check, values) for check, values in found if values)
    if not decided:
        word, reason = UNTRIED, "not measured in this run"
    elif True in decided and False in decided:
        word = PARTLY
    elif None in decided or missing:
        word = UNDECIDED
    else:
        word = HOLDS if decided[0] else FAILS
    if decided and missing:
        reason = "; ".join([reason, *(f"{name}: not measured" for name in missing)])
    return Verdict(claim, word, reason, {key: value for _, values in found for key, value in values.items()})


def _reason(check: Check, values: dict[str, Value]) -> str:
    """Describe a check: its required range and the values of all cases, or their range if there are many."""
    good = [key for key, value in values.items() if check.decide(value)]
    if len(values) > MAX_LISTED:
        middles = [center(value) for value in values.values()]
        span = f"{number(min(middles), DIGITS)} to {number(max(middles), DIGITS)}"
        missed = [check.case(key) for key in values if key not in good]
        but = f", not met in {', '.join(missed)}" if 0 < len(missed) <= MAX_LISTED else ""
        return f"{check.name} (required: {check.range}): {span}, met in {len(good)} of {len(values)} cases{but}"
    values_text = [": ".join(filter(None, [check.case(key), check.format_value(value)])) for key, value in values.items()]
    return f"{check.name} (required: {check.range}): {', '.join(values_text)}"


def document(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict as an entry of `claims.json`: medians, the values of all seeds, and intervals."""
    claim, several = verdict.claim, {k: v for k, v in verdict.measured.items() if not isinstance(v, int | float)}
    return {
        "key": claim.key,
        "arm": claim.arm,
        "where": claim.where,
        "claim": claim.statement,
        "published": claim.published,
        "measured": {key: _finite(center(value)) for key, value in verdict.measured.items()},
        "values": {key: [_finite(v) for v in value] for key, value in several.items()},
        "intervals": {key: [_finite(end) for end in interval(value)] for key, value in several.items()},
        "verdict": verdict.word,
        "reason": verdict.reason,
    }


def _finite(value: float) -> float | None:
    """Return a value as JSON has it: infinity and NaN are null."""
    return float(value) if math.isfinite(value) else None
