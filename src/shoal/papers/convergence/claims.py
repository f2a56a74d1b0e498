"""Claims of Bottou and Bengio (1995), with what the paper publishes."""

from __future__ import annotations

from ..claims import LETTER, Check, Claim, both

ONLINE, BATCH, ONLINE_GRADIENT, BATCH_GRADIENT = "online k-means", "batch k-means", "online gradient", "batch gradient"
EM, BOTH = "EM of a mixture", "one online epoch, then batch"
AVERAGES = 30 / 4065  # published: average minima from 4050 to 4080
SPAN, LEAST = 5800 / 3300, 4065 / 3300  # published: minima from 3300 to 5800, and their average

CLAIMS: tuple[Claim, ...] = (
    *both(
        "online-first",
        "Figure 1",
        "Online k-means has the lowest residual in the first five epochs ({arm}).",
        "lowest in epochs 1 to 5",
        Check("{arm}: residual of online k-means / lowest residual of the other methods", most=1.0),
    ),
    *both(
        "batch-later",
        "Figure 1",
        "Batch k-means has the lowest residual after five epochs ({arm}).",
        "lowest from epoch 6 on",
        Check("{arm}: residual of batch k-means / lowest residual of the other methods", most=1.0),
    ),
    *both(
        "batch-converges",
        "section 5",
        "All 20 runs of batch k-means converge before epoch 15 ({arm}).",
        "all 20 runs before epoch 15",
        Check("{arm}: last epoch in which any run of batch k-means changed", most=14),
    ),
    *both(
        "crossing",
        "Figure 2",
        "The ratios of successive residuals of online and batch k-means cross during epoch 2 ({arm}).",
        "epoch 2",
        Check("{arm}: first epoch in which batch k-means has a lower ratio than online k-means", 2, 2),
    ),
    *both(
        "superlinear",
        "Figure 2",
        "The ratio of successive residuals goes to zero for batch k-means and for no other method ({arm}).",
        "to zero for batch k-means only",
        Check("{arm}: epoch after which the residual of batch k-means is zero", most=14),
        Check("{arm}: smallest ratio of successive residuals of the other methods, epochs 9 to 19", least=1e-3),
    ),
    *both(
        "ratio-falls",
        "Figure 2",
        "The ratio of batch k-means, averaged over runs with zero for those that have converged, falls from epoch to epoch "
        "({arm}).",
        "fast convergence of this ratio to zero",
        Check("{arm}: mean ratio of a run of batch k-means in epoch 10 / in epoch 5", most=0.5),
    ),
    *both(
        "em",
        "Figure 2",
        "EM has a lower ratio than all algorithms but batch k-means ({arm}).",
        "better than all other algorithms except batch k-means",
        Check("{arm}, variance per column: ratio of EM / lowest ratio of the online and gradient methods", most=1.0),
        Check("{arm}, total variance: ratio of EM / lowest ratio of the online and gradient methods", most=1.0),
    ),
    *both(
        "gradients",
        "Figure 1",
        "Both gradient methods converge slowly ({arm}).",
        "poor convergence: far above online k-means after 20 epochs",
        Check("{arm}: residual of batch gradient / residual of online k-means after 20 epochs", least=1.0),
        Check("{arm}: residual of online gradient / residual of online k-means after 20 epochs", least=1.0),
    ),
    *both(
        "gradient-order",
        "Figure 1",
        "The online gradient method starts faster than the batch gradient method and is slower in the long run ({arm}).",
        "starts faster, outperformed in the long run",
        Check("{arm}: residual of online gradient / residual of batch gradient after epoch 1", most=1.0),
        Check("{arm}: residual of online gradient / residual of batch gradient after 20 epochs", least=1.0),
    ),
    *both(
        "minima",
        "section 5",
        "All algorithms reach equally good minima on average ({arm}).",
        "averages from 4050 to 4080, a range of 0.7%",
        Check("{arm}: range of the average minima / their mean", most=AVERAGES),
    ),
    *both(
        "starts",
        "section 5",
        "The published spread of the minima is that of a sample of 20 runs ({arm}).",
        "minima from 3300 to 5800, average 4065: factors of 1.76 and 1.23; the unit is not stated",
        Check("{arm}: share of samples in which the largest / the smallest minimum is at most 1.76", 0.025, 0.975),
        Check("{arm}: share of samples in which the average / the smallest minimum is at most 1.23", 0.025, 0.975),
    ),
    *both(
        "hybrid",
        "section 5",
        "One online epoch followed by the batch algorithm converges fastest ({arm}).",
        "suggested by the crossing in epoch 2",
        Check("{arm}: mean epochs to convergence, one online epoch then batch / batch only", most=1.0),
        Check("{arm}: residual of one online epoch then batch / lower residual of online and batch, epochs 2 to 9", most=1.0),
    ),
    *both(
        "noise-level",
        "section 5",
        "Online k-means settles on a level of noise ({arm}).",
        "stabilizes on a level related to the stochastic noise",
        Check("{arm}: ratio of successive residuals of online k-means, epochs 11 to 20", least=0.9),
    ),
    *both(
        "monotone",
        "section 3.1",
        "Each epoch of batch k-means decreases the error until it is constant ({arm}).",
        "proved",
        Check("{arm}: largest increase of the error of batch k-means in an epoch / error", most=1e-12),
    ),
    *both(
        "newton",
        "section 4",
        "The Hessian of the error is diag(N_k), so an epoch of batch k-means is a Newton step ({arm}).",
        "proved",
        Check("{arm}: largest difference between an epoch of batch k-means and a Newton step / the step", most=1e-4),
    ),
    Claim(
        "hessian",
        "section 4.1",
        "The Hessian of the error is diag(N_k).",
        "proved",
        (Check("largest deviation of diag(N_k) from a numerical Hessian / largest N_k", most=1e-4),),
        LETTER,
    ),
    Claim(
        "final-jump",
        "section 4.2",
        "Once the assignment is optimal, batch k-means jumps to the optimum.",
        "jumps to the optimum and terminates",
        (Check("residual one epoch after the last change of an assignment / residual before", most=1e-9),),
        LETTER,
    ),
    Claim(
        "first-patterns",
        "section 4.2",
        "The first few patterns of online k-means improve the prototypes as much as a complete batch epoch.",
        "after the first few patterns",
        (Check("patterns that online k-means needs for the error after one batch epoch / all patterns", most=0.5),),
        LETTER,
    ),
    Claim(
        "twenty-runs",
        "section 5",
        "More than twenty runs do not improve the standard deviation of the measures.",
        "did not improve",
        (Check("standard deviation of the minima over 20 runs / over all runs", 0.8, 1.25),),
        LETTER,
    ),
    Claim(
        "rate",
        "section 5",
        "0.03 / t is the best learning rate of the gradient methods.",
        "that we have found optimal",
        (
            Check("batch gradient: residual at 0.03 / t / lowest of all rates", most=1.0),
            Check("batch gradient: error at 0.03 / t / lowest of all rates", most=1.0),
            Check("online gradient, t counts epochs: residual at 0.03 / t / lowest of all rates", most=1.0),
            Check("online gradient, t counts epochs: error at 0.03 / t / lowest of all rates", most=1.0),
            Check("online gradient, t counts patterns: residual at 0.03 / t / lowest of all rates", most=1.0),
        ),
        LETTER,
    ),
)
