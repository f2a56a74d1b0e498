"""The time after which a task is late, estimated from the durations of others."""

from __future__ import annotations

from statistics import median

MIN_LATE_SECONDS = 30.0  # no task is late before; shorter times submit tasks twice when a worker is just busy
LATE_FACTOR = 4.0  # multiple of the median duration after which a task is late


class LatenessEstimator:
    """Durations of this pass's submissions, and how long its answers could not be fetched.

    Invariant: `durations` holds one value per submission that gave an answer, from submission to answer.
    """

    def __init__(self) -> None:
        self.durations: list[float] = []
        self.fetch_delay = 0.0  # longest time in seconds that an answer could not be fetched; 0 if all came at once

    def threshold(self, expected_seconds: float) -> float:
        """Return the seconds after which a task is late, given the median duration of the last pass of this kind.

        Before the first answer of a pass more time is allowed, since the last pass says little about this one.
        """
        if self.durations:
            return max(MIN_LATE_SECONDS, LATE_FACTOR * median(self.durations))
        return LATE_FACTOR * max(MIN_LATE_SECONDS, LATE_FACTOR * expected_seconds)

    def median_duration(self, default: float) -> float:
        """Return the median duration, or a default if there is none."""
        return median(self.durations or [default])
