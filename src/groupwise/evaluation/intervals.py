"""Intervals for shares: how far an observed success rate can be trusted."""

from __future__ import annotations

import math
from collections.abc import Sequence

Z_95 = 1.959963984540054
"""Quantile of the normal distribution that leaves 2.5 % on either side."""


def wilson_interval(wins: float, tries: float, z: float = Z_95) -> tuple[float, float]:
    """Wilson's interval for a share: it stays within [0, 1] and is right at the ends.

    >>> [round(bound, 3) for bound in wilson_interval(5, 10)]
    [0.237, 0.763]
    """
    share, spread = wins / tries, z * z / tries
    middle = (share + spread / 2) / (1 + spread)
    half = z * math.sqrt(share * (1 - share) / tries + spread / (4 * tries)) / (1 + spread)
    return max(middle - half, 0.0), min(middle + half, 1.0)


def mean_over_clusters(scores: Sequence[Sequence[float]], z: float = Z_95) -> tuple[float, tuple[float, float]]:
    """Mean share over clusters, such as a panel's tasks, and its 95 % interval.

        p = mean_i p_i,   n = N p (1 - p) / mean_i (p_i - p)^2 * (z / t)^2,   Wilson's interval of p over n tries

    `scores` holds a cluster's attempts, each from 0 to 1; p_i is their mean, N the number of clusters, and t Student's
    quantile with N - 1 degrees of freedom, since the spread of few clusters is itself uncertain. Attempts at one task
    are alike, so they count for less than as many tasks would: n, the effective number of tries, lies between the
    number of clusters and the number of attempts. With one attempt a cluster this is Wilson's interval.

    Source: Korn and Graubard 1998, "Confidence intervals for proportions with small expected number of positive counts
    estimated from survey data", with Wilson's interval in place of the exact one.

    Choices: the interval speaks of further tasks of the same kind, not of these tasks alone; two tasks say little,
    however often they are tried. Clusters count the same, however many attempts they have. Where all attempts agree,
    nothing tells how alike they are, and n is the number of clusters: more would not cover.

    >>> share, (low, high) = mean_over_clusters([[1.0, 1.0], [0.0, 0.0], [1.0, 0.0], [1.0, 1.0]])
    >>> share, round(low, 3), round(high, 3)
    (0.625, 0.219, 0.908)
    """
    means = [math.fsum(cluster) / len(cluster) for cluster in scores]
    return _over_clusters(means, sum(len(cluster) for cluster in scores), z)


def pass_at(k: int, *, wins: int, tries: int) -> float:
    """Probability that at least one of k attempts succeeds, from `wins` successes in `tries` attempts at a task.

        1 - C(tries - wins, k) / C(tries, k)

    The share of all choices of k among the attempts that hold a success. It is unbiased, which 1 - (1 - wins/tries)^k
    is not. Source: Chen et al. 2021, arXiv:2107.03374, equation 1.

    >>> pass_at(2, wins=1, tries=4)
    0.5
    """
    assert 1 <= k <= tries, "k attempts are chosen among those that were made"
    return 1 - math.comb(tries - wins, k) / math.comb(tries, k)


def mean_pass_at(k: int, counts: Sequence[tuple[int, int]], z: float = Z_95) -> tuple[float, tuple[float, float]]:
    """Mean of `pass_at` over tasks, each given as (wins, tries), and its 95 % interval.

    Choices: the interval is that of `mean_over_clusters` with a task's pass@k in place of its mean, so it speaks of
    further tasks of the same kind, and at k = 1 the two are the same. The effective number of tries is at most the
    number of disjoint choices of k attempts.

    >>> share, (low, high) = mean_pass_at(2, [(4, 4), (1, 4), (0, 4)])
    >>> share, round(low, 3), round(high, 3)
    (0.5, 0.125, 0.875)
    """
    estimates = [pass_at(k, wins=wins, tries=tries) for wins, tries in counts]
    return _over_clusters(estimates, sum(tries // k for _, tries in counts), z)


def _over_clusters(means: Sequence[float], max_tries: int, z: float) -> tuple[float, tuple[float, float]]:
    """Mean over clusters and its interval; they stand for at most `max_tries` independent tries."""
    share = math.fsum(means) / len(means)
    between = math.fsum((mean - share) ** 2 for mean in means) / len(means)
    tries = float(len(means))
    if 0 < share < 1 and max_tries > len(means) > 1:
        effective = min(tries * share * (1 - share) / between, max_tries) if between else max_tries
        tries = max(tries, effective * (z / student_quantile(z, len(means) - 1)) ** 2)
    return share, wilson_interval(share * tries, tries, z)


def student_quantile(z: float, freedom: int) -> float:
    """Student's quantile where the normal distribution has z, by its expansion in the degrees of freedom.

    Source: Abramowitz and Stegun 26.7.5. Right to 1 % from 4 degrees of freedom on, too small below.

    >>> round(student_quantile(Z_95, 10), 3), round(student_quantile(Z_95, 199), 3)
    (2.228, 1.972)
    """
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return z + sum(term / float(freedom) ** power for power, term in enumerate(terms, start=1))
