"""Claims of Zhao et al. (2018), with what the paper publishes."""

from __future__ import annotations

from ..claims import LETTER, Check, Claim, both

SETS = ("sift", "mnist")
GOALS = (10, 30, 100)  # steps of batch k-means whose losses are the goals of a race
SPEED = {
    "VRKM": "2.07, 2.57, 2.04, 2.00",
    "VRKM++": "4.14, 5.54, 4.30, 3.60",
    "batch KM": "1",
    "growbatch-rho": "1.26, –, –, –",
}


def speed(unit: str) -> tuple[Claim, ...]:
    """Return the claims on speed, in seconds or in distances."""
    return (
        *both(
            f"vrkm-{unit}",
            "Table 3",
            f"VRKM reaches the loss of batch k-means at least twice as fast ({{arm}}, {unit}).",
            "2.07, 2.57, 2.04 and 2.00 times",
            Check(f"{{arm}}, {unit}: speed-up of VRKM to the loss of batch KM", 2.0, cases=SETS),
        ),
        *both(
            f"vrkm++-{unit}",
            "Table 3",
            f"VRKM++ reaches the loss of batch k-means about four times as fast ({{arm}}, {unit}).",
            "4.14, 5.54, 4.30 and 3.60 times",
            Check(f"{{arm}}, {unit}: speed-up of VRKM++ to the loss of batch KM", 3.6, cases=SETS),
        ),
        *both(
            f"lower-{unit}",
            "Figure 5, Table 3",
            f"At the cost of batch k-means, VRKM++ reaches a lower loss than all other methods ({{arm}}, {unit}).",
            "lowest on all four data sets",
            Check(f"{{arm}}, {unit}: final loss of VRKM++ / lowest final loss of the other methods", most=1.0, cases=SETS),
        ),
        *both(
            f"noise-{unit}",
            "Table 3",
            f"At the cost of batch k-means, mini-batches and SGD do not reach its loss ({{arm}}, {unit}).",
            "no speed-up on any data set",
            Check(f"{{arm}}, {unit}: final loss of mini-batch KM / of batch KM", 1.0, cases=SETS),
            Check(f"{{arm}}, {unit}: final loss of SGD-KM / of batch KM", 1.0, cases=SETS),
        ),
    )


CLAIMS: tuple[Claim, ...] = (
    Claim(
        "drift",
        "Figure 3",
        "Without position correction, variance reduction diverges; with it, the loss falls.",
        "the objective rises",
        (
            Check("last loss / first loss without position correction", 1.0),
            Check("last loss / first loss with position correction", most=1.0),
        ),
        LETTER,
    ),
    Claim(
        "drift-cause",
        "section 4.1",
        "The divergence is caused by the change of the partition: for a frozen one the loss does not rise.",
        "which makes it impossible to update the center until convergence",
        (Check("last loss / first loss without position correction, frozen partition", most=1.0),),
        LETTER,
    ),
    Claim(
        "drift-weight",
        "section 3.3, (7)",
        "The variance-reduced gradient is the batch gradient in expectation: with clusters weighted by v_k / n, the loss "
        "falls.",
        "equals the batch gradient in expectation",
        (
            Check("last loss / first loss without position correction, gradient weighted by v_k / n", most=1.0),
            Check("deviation of the mean printed gradient from the batch gradient, relative", most=0.05),
        ),
        LETTER,
    ),
    *speed("seconds"),
    *speed("distances"),
    *both(
        "plusplus-faster",
        "Table 3",
        "VRKM++ is about twice as fast as VRKM, which computes batch gradients ({arm}).",
        "1.8 to 2.2 times",
        Check("{arm}: seconds of VRKM / of VRKM++ to the loss of batch KM", 1.8, cases=SETS),
    ),
    *both(
        "same-end",
        "Tables 3 and 4",
        "VRKM and VRKM++ end at the same loss ({arm}).",
        "equal to 0.03%",
        Check("{arm}: loss of VRKM / of VRKM++ after equally many epochs", 0.999, 1.001, SETS),
    ),
    *both(
        "grows",
        "section 6.2",
        "The speed-up becomes more significant on larger data ({arm}, distances).",
        "more significant on large datasets",
        Check("{arm}: speed-up of VRKM++ with all rows / with a quarter", 1.0),
    ),
    *both(
        "epoch-size",
        "Figure 6",
        "The epoch size has a slight impact between a quarter of the rows and twice the rows ({arm}).",
        "a slight impact",
        Check("{arm}: largest range of the losses over epoch sizes after 5, 10 and 20 passes, in percent", most=1.0),
    ),
    Claim(
        "doubling-epochs",
        "section 5.2",
        "Epochs that double in size, T = 2^s, are as good as T = n after equally many rows.",
        "alternatively",
        (Check("loss with T = 2^s / with T = n after equally many rows", most=1.01),),
        LETTER,
    ),
    *both(
        "larger-rates",
        "Figure 7",
        "Learning rates above K / n converge faster ({arm}).",
        "generally, a larger learning rate improves the convergence",
        Check("{arm}: loss at 5 K / n relative to K / n", most=1.0),
        Check("{arm}: loss at 10 K / n relative to K / n", most=1.0),
    ),
    *both(
        "too-large",
        "Figure 7",
        "Very large learning rates impair the convergence on small data ({arm}).",
        "impaired on CIFAR-100 and Caltech-256",
        Check("{arm}: loss at the largest rate relative to the lowest at smaller ones", 1.0),
    ),
    *both(
        "quality",
        "Table 4",
        "In the time of an unconverged batch k-means, VRKM++ has the best ACC, NMI and purity ({arm}).",
        "NMI 0.3742 against 0.3701 for batch k-means (CIFAR-100)",
        Check("{arm}: score of VRKM++ minus the best of the other methods but VRKM", 0.0),
    ),
    *both(
        "quality-sgd",
        "Table 4",
        "SGD has the worst ACC, NMI and purity ({arm}).",
        "NMI 0.3357 against 0.3546 for mini-batches (CIFAR-100)",
        Check("{arm}: score of SGD-KM minus the lowest of the other methods", most=0.0),
    ),
)
