"""Claims of Shen et al. (2017), with what the paper publishes."""

from __future__ import annotations

from ..claims import LETTER, Check, Claim, both

KM, KMPP, NYSTROM, LSC, LSH, CKM = "k-means", "k-means++", "Nyström", "LSC-K", "LSH + bk-means", "CKM"
SETS = {"news": ("RCV1", 128), "covtype": ("CovType", 32), "mnist": ("MNIST8M", 128)}  # data set in the paper, bits per code
SPEED = {  # published speed-ups over k-means
    "RCV1": (1, 0.75, 3.13, 0.93, 47.75, 11.94), "CovType": (1, 1.55, 0.44, 0.26, 17.0, 5.67),
    "MNIST8M": (1, 3.77, 6.85, 1.90, 96.22, 39.19),
}  # fmt: skip
REDUCTION = {"RCV1": 988, "CovType": 432, "MNIST8M": 392}
CLEARLY, COMPARABLE = 0.02, 0.05  # differences of ACC; the paper shows bars without numbers

CLAIMS: tuple[Claim, ...] = (
    *both(
        "bound",
        "Figure 1",
        "Learning decreases the upper bound and the loss ({arm}).",
        "both decrease",
        Check("{arm}: last / first upper bound, means of two rounds", most=0.95),
        Check("{arm}: last / first loss, means of two rounds", most=0.95),
    ),
    *both(
        "converges",
        "Figure 1",
        "The upper bound and the loss converge within a few iterations ({arm}).",
        "converge within a few iterations",
        Check("{arm}: rounds until both have fallen and stay within 5% of their last values", most=10),
    ),
    *both(
        "fast",
        "Table 2",
        "CKM is several times as fast as k-means ({arm}).",
        "11.94 (RCV1), 5.67 (CovType) and 39.19 times (MNIST8M)",
        Check("{arm}: speed-up of CKM over k-means", 5.67, cases=tuple(SETS)),
    ),
    Claim(
        "fast-operations",
        "Table 2",
        "CKM needs several times fewer operations than k-means.",
        "11.94 (RCV1), 5.67 (CovType) and 39.19 times (MNIST8M)",
        (Check("operations of k-means / of CKM, the letter", 5.67, cases=tuple(SETS)),),
        LETTER,
    ),
    *both(
        "faster-than-spectral",
        "Table 2",
        "CKM is faster than Nyström, LSC-K and k-means++ ({arm}).",
        "second only to LSH + bk-means on all data sets",
        Check("{arm}: time of the fastest of Nyström, LSC-K and k-means++ / of CKM", 1.0, cases=tuple(SETS)),
    ),
    *both(
        "lsh-fastest",
        "Table 2",
        "LSH with k-means on codes is faster than CKM, as it does not learn codes ({arm}).",
        "the fastest of all",
        Check("{arm}: time of CKM / of LSH + bk-means", 1.0, cases=tuple(SETS)),
    ),
    *both(
        "better-than-lsh",
        "Figure 2",
        "CKM is clearly more accurate than LSH with k-means on codes ({arm}).",
        "clearly better on all data sets",
        Check("{arm}: ACC of CKM minus that of LSH + bk-means", CLEARLY, cases=tuple(SETS)),
    ),
    *both(
        "comparable",
        "Figure 2",
        "CKM is about as accurate as the best of the other methods ({arm}).",
        "generally comparable to the best",
        Check("{arm}: ACC of CKM minus the best of the other methods", -COMPARABLE, cases=tuple(SETS)),
    ),
    Claim(
        "lsh-text",
        "Figure 2",
        "LSH with k-means on codes has a very low accuracy on text.",
        "very low on RCV1 and ILSVRC2012",
        (Check("news: ACC of LSH + bk-means / of k-means", most=0.5),),
    ),
    Claim(
        "kmeans++-better",
        "Figure 2",
        "k-means++ is generally more accurate than k-means.",
        "generally outperforms k-means",
        (Check("ACC of k-means++ minus that of k-means", 0.0, cases=tuple(SETS)),),
    ),
    Claim(
        "lsc-mnist",
        "Figure 2",
        "LSC-K is the most accurate on digits.",
        "performs best on MNIST8M",
        (Check("mnist: ACC of LSC-K minus the best of the other methods", 0.0),),
    ),
    Claim(
        "lsc-nystrom",
        "Figure 2",
        "LSC-K is more accurate than Nyström's method.",
        "performs better",
        (Check("ACC of LSC-K minus that of Nyström", 0.0, cases=tuple(SETS)),),
    ),
    Claim(
        "nystrom-faster",
        "Table 2",
        "Nyström's method is faster than LSC-K.",
        "1.7 to 8.4 times",
        (Check("time of LSC-K / of Nyström", 1.0, cases=tuple(SETS)),),
    ),
    Claim(
        "kmeans++-faster",
        "Table 2",
        "k-means++ is faster than k-means on CovType and MNIST8M, and slower on RCV1.",
        "1.55, 3.77 and 0.75 times as fast",
        (
            Check("covtype: time of k-means / of k-means++", 1.0),
            Check("mnist: time of k-means / of k-means++", 1.0),
            Check("news: time of k-means / of k-means++", most=1.0),
        ),
    ),
    *both(
        "iteration",
        "Figure 3",
        "The first iteration of CKM is several times as fast as that of k-means for every number of clusters ({arm}).",
        "far faster for all k; 25 s against 6500 s for 1000 clusters",
        Check("{arm}: time of an iteration of k-means / of CKM", 2.0),
    ),
    Claim(
        "memory",
        "Table 3",
        "Codes of digits and frequent words need 392 and 988 times less memory than rows in float64.",
        "392 (MNIST8M) and 988 (RCV1, 1,979 words)",
        (
            Check("mnist: bytes of the rows as dense float64 / bytes of their codes", 392, 392),
            Check("news: bytes of the rows as dense float64 / bytes of their codes / (columns / 2)", 0.99, 1.01),
        ),
    ),
    Claim(
        "memory-covtype",
        "Table 3",
        "Codes of CovType need 432 times less memory than rows in float64.",
        "432; the sizes in the paper, 0.25 GB and 2.32 MB, give 108",
        (Check("covtype: bytes of the rows as dense float64 / bytes of their codes", 432 * 0.95, 432 * 1.05),),
    ),
    *both(
        "beta",
        "Figure 4",
        "The fraction of rows that codes are learned from has little effect on the accuracy ({arm}).",
        "does not heavily influence the performance",
        Check("{arm}: range of ACC over the training fractions", most=0.05, cases=tuple(SETS)),
    ),
    *both(
        "beta-more",
        "Figure 4",
        "The accuracy improves slightly with the fraction of rows ({arm}).",
        "slightly improves as beta increases",
        Check("{arm}: ACC with codes learned from all rows minus that with the smallest fraction", 0.0, cases=tuple(SETS)),
    ),
    Claim(
        "reading",
        "Figure 2",
        "The reading of the paper's gaps with the lowest loss is about as accurate as the best of the other methods.",
        "generally comparable to the best",
        (Check("ACC of the reading with the lowest loss minus that of k-means++", -COMPARABLE, cases=tuple(SETS)),),
        LETTER,
    ),
    *both(
        "bound-holds",
        "Theorem 1",
        "The upper bound is above the loss ({arm}).",
        "proved",
        Check("{arm}: smallest upper bound / loss of a round", 1.0),
    ),
)
