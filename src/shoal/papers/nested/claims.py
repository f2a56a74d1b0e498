"""Claims of Newling and Fleuret (2016), with what the paper publishes."""

from __future__ import annotations

import math

from ..claims import LETTER, SHOAL, Check, Claim, both

DENSE, SPARSE = ("mnist", "sift"), ("news", "glosses")
UNITS = ("seconds", "distances")
NEAR, NEARER, NEAREST = "2%", "1%", "0.5%"
LEVELS = {NEAR: 1.02, NEARER: 1.01, NEAREST: 1.005}
LLOYD, YINYANG, MBATCH, NMBATCH = "lloyd", "yinyang", "mbatch", "nmbatch"


def ratio(rival: str, level: str, kind: str, unit: str, start: str = "") -> str:
    """Return the name of the ratio of the costs to a level above the lowest energy."""
    of = "the lowest energy from the same start" if start else "E*"
    return f"{{arm}}: {unit} of {rival} / of nmbatch to within {level} of {of}, {kind}"


def speed(unit: str) -> tuple[Claim, ...]:
    """Return the claims on speed, in seconds or in distances."""
    return (
        *both(
            f"dense-{unit}",
            "Figure 2",
            f"On dense data, nested batches get within 2% of E* 10 to 100 times sooner than mini-batches ({{arm}}, {unit}).",
            "10 to 100 times",
            Check(ratio(MBATCH, NEAR, "dense", unit), 10.0, cases=DENSE),
        ),
        *both(
            f"headline-{unit}",
            "abstract",
            f"Nested batches get within 1% of E* 100 times sooner than mini-batches ({{arm}}, {unit}).",
            "often 100 times",
            Check(ratio(MBATCH, NEARER, "dense", unit), 100.0, cases=DENSE),
        ),
        *both(
            f"exact-{unit}",
            "Figure 2",
            f"On dense data, nested batches get within 2% of E* sooner than the exact methods ({{arm}}, {unit}).",
            "consistently faster than all baselines",
            Check(ratio(LLOYD, NEAR, "dense", unit), 1.0, cases=DENSE),
            Check(ratio(YINYANG, NEAR, "dense", unit), 1.0, cases=DENSE),
        ),
        *both(
            f"same-start-{unit}",
            "Figure 2",
            f"On dense data, nested batches get within 2% of the lowest energy from the same start sooner than mini-batches "
            f"and "
            f"Lloyd's algorithm ({{arm}}, {unit}).",
            "consistently faster; the paper does not compare by start",
            Check(ratio(MBATCH, NEAR, "dense", unit, "start"), 1.0, cases=DENSE),
            Check(ratio(LLOYD, NEAR, "dense", unit, "start"), 1.0, cases=DENSE),
        ),
        *both(
            f"sparse-{unit}",
            "Figure 2",
            f"On sparse data, nested batches get within 0.5% of E* sooner than mini-batches ({{arm}}, {unit}).",
            "noticeable within 0.5%",
            Check(ratio(MBATCH, NEAREST, "sparse", unit), 1.0),
        ),
    )


CLAIMS: tuple[Claim, ...] = (
    *speed("seconds"),
    *speed("distances"),
    *both(
        "greater-below",
        "Figure 2",
        "The speed-up over mini-batches is greater within 1% than within 2% ({arm}).",
        "even greater speed-ups below 2%",
        Check("{arm}: speed-up within 1% / within 2%, seconds", 1.0, cases=DENSE),
    ),
    *both(
        "same-minima",
        "section 4",
        "Final energies of nested batches and exact methods differ by less than one standard deviation over starts ({arm}).",
        "consistently within one standard deviation",
        Check("{arm}: final energy of nmbatch minus that of lloyd, in standard deviations of lloyd", -1.0, 1.0, DENSE),
    ),
    *both(
        "one-epoch",
        "section 4",
        "For the distances of one iteration of Lloyd's algorithm, nested batches get nearer to E* ({arm}).",
        "in a single epoch very near to E*, while the full batch algorithms complete one iteration",
        Check("{arm}: excess over E* of nmbatch / of lloyd after the distances of one iteration of lloyd", most=0.5),
    ),
    Claim(
        "large-rho",
        "Figure 3",
        "With bounds, doubling thresholds of 10, 100 and 1000 give similar results.",
        "little difference",
        (Check("range of the errors at rho = 10, 100 and 1000 / range over all rho, with bounds", most=0.5),),
        LETTER,
    ),
    Claim(
        "rho-without-bounds",
        "Figure 3",
        "Without bounds, a threshold of 10 is generally better than larger ones.",
        "rho = 10 is generally better",
        (Check("error at rho = 10 minus the lower error at 100 and 1000, without bounds, in percent", most=0.0),),
        LETTER,
    ),
    Claim(
        "bounds-help",
        "Figure 3",
        "Bounds reduce the error for a given time at rho = 100.",
        "lower errors with active bound testing",
        (Check("error at rho = 100 with bounds minus without, in percent", most=0.0),),
        LETTER,
    ),
    Claim(
        "baseline",
        "Table 1",
        "The mini-batch baseline is competitive with scikit-learn (the letter, loops over rows).",
        "1.7 times as fast on dense rows, 4.2 times on sparse rows",
        (Check("rows per second of the letter's mbatch / scikit-learn's", 1.0, cases=("mnist", "news")),),
        LETTER,
    ),
    Claim(
        "baseline-shoal",
        "Table 1",
        "The mini-batch baseline is competitive with scikit-learn (Shoal).",
        "1.7 times as fast on dense rows, 4.2 times on sparse rows",
        (Check("rows per second of Shoal's mbatch / scikit-learn's", 1.0, cases=("mnist", "news")),),
        SHOAL,
    ),
    Claim(
        "revisits",
        "section 1.3, SM-A",
        "In the first epoch of mini-batches, at most 1/e of the visits are revisits.",
        "at most 1/e",
        (Check("share of revisits in the first epoch", most=1 / math.e),),
    ),
    Claim(
        "displacement",
        "section 3.2.1, SM-B",
        "Half of sigma_C estimates how far a centroid moves when the batch doubles.",
        "the left-hand side can be estimated by sigma_C / 2",
        (Check("displacement by doubling the batch / half of sigma_C, median of the centroids", 0.5, 2.0),),
        LETTER,
    ),
)
