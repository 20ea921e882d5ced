"""Published numbers of the baseline methods: A-GRAE, NGRPO, MC-GRPO, DGPO (see conformance/numbers.md)."""

from __future__ import annotations

from conformance.case import Case
from conformance.cases.published_episode import T1, T2, by_reward
from conformance.expectations import DOUBLE, SIX_DECIMALS, Agrees, Values
from conformance.tables import make_finished, single_step, with_columns

BOTH = single_step(hard=T1, easy=T2)
MEDIAN_GROUP = [0.2, 1.0, 0.0, 0.9, 0.5]


def n_of_eight(correct: int) -> list[float]:
    """A group of eight with the first ones correct."""
    return [1.0] * correct + [0.0] * (8 - correct)


CASES = [
    Case(
        name="hard-and-easy-tasks-under-a-grae",
        why="Vector of numbers, A-GRAE: batch mean 0.5, alpha 1.",
        method="a_grae",
        columns=BOTH,
        # T1: z 1.620182 * (0.25 / 0.5 + 0.25 / 0.866025) = 1.277797; positives times 0.5.
        expect=Values(by_reward(T1, 0.638899, -0.425932) + by_reward(T2, 0.212966, -1.277797), SIX_DECIMALS),
    ),
    Case(
        name="hard-and-easy-tasks-under-released-a-grae",
        why="The release divides the easy term by 1 - sqrt(p), the paper by sqrt(1 - p) (numbers, A-GRAE).",
        method="a_grae",
        options={"reference": True},
        columns=BOTH,
        # T1: z 1.620182 * (0.25 / 0.5 + 0.25 / 0.5), positives times 0.5.
        # T2: z 0.540061 * (0.25 / 0.866025 + 0.25 / 0.133975), positives times 0.5.
        expect=Values(by_reward(T1, 0.810089, -0.540059) + by_reward(T2, 0.581831, -3.490983), SIX_DECIMALS),
        kind="convention",
    ),
    Case(
        name="positive-credit-is-not-attenuated-once-the-batch-does-well",
        why="Vector of numbers, A-GRAE: batch mean 0.8, alpha 0.5, so min(1, w / alpha) = 1.",
        method="a_grae",
        options={"alpha": 0.5},
        # 2 of 8 and 22 of 22 correct: (2 + 22) / 30 = 0.8.
        columns=single_step(hard=T1, solved=[1.0] * 22),
        expect=Values(by_reward(T1, 1.483228, -0.494409) + [0.0] * 22, SIX_DECIMALS),
    ),
    Case(
        name="an-all-wrong-group-is-pushed-down-by-the-virtual-best",
        why="Vector T0 of numbers, NGRPO: -1/3 for eight wrong answers.",
        method="ngrpo",
        columns=single_step(q=[0.0] * 8),
        # nine values, one of them 1: mean 1/9, sample std 1/3.
        expect=Values([-0.333332] * 8, SIX_DECIMALS),
    ),
    Case(
        name="mixed-groups-with-a-virtual-best-member",
        why="Vectors T1 and T2 of numbers, NGRPO.",
        method="ngrpo",
        columns=BOTH,
        expect=Values(by_reward(T1, 1.333331, -0.666665) + by_reward(T2, 0.503951, -1.763830), SIX_DECIMALS),
    ),
    Case(
        name="three-wrong-answers-and-two-virtual-members",
        why="K virtual members join the statistics only (numbers, NGRPO).",
        method="ngrpo",
        options={"virtual": 2},
        columns=single_step(q=[0.0, 0.0, 0.0]),
        # {0,0,0,1,1}: mean 0.4, sample std sqrt(1.2 / 4) = 0.547723.
        expect=Values([-0.730295] * 3, SIX_DECIMALS),
    ),
    Case(
        name="the-virtual-member-has-the-true-best-reward",
        why="r_max must be the maximum of the reward (numbers, NGRPO), here 2.",
        method="ngrpo",
        options={"best": 2.0},
        columns=single_step(q=[2.0, 0.0, 1.0]),
        # {2,0,1,2}: mean 1.25, sample std 0.957427.
        expect=Values([0.783349, -1.305581, -0.261116], SIX_DECIMALS),
    ),
    Case(
        name="five-graded-rewards-around-their-median",
        why="Vector of numbers, MC-GRPO: median 0.5, MAD 0.4.",
        method="mc_grpo",
        columns=single_step(q=MEDIAN_GROUP),
        expect=Values([-0.748130, 1.246883, -1.246883, 0.997506, 0.0], SIX_DECIMALS),
    ),
    Case(
        name="one-of-three-correct-is-scaled-by-the-deviation",
        why="MAD is 0 for binary rewards; the fallback std 0.577350 is ours (numbers, MC-GRPO).",
        method="mc_grpo",
        columns=single_step(q=[1.0, 0.0, 0.0]),
        expect=Values([1.732051, 0.0, 0.0], SIX_DECIMALS),
        kind="convention",
    ),
    Case(
        name="one-of-three-correct-gets-a-thousand-in-released-mc-grpo",
        why="MAD + 1e-3 with MAD = 0, as the release has it (numbers, MC-GRPO).",
        method="mc_grpo",
        options={"reference": True},
        columns=single_step(q=[1.0, 0.0, 0.0]),
        expect=Values([1000.0, 0.0, 0.0], SIX_DECIMALS),
        kind="convention",
    ),
    Case(
        name="an-even-group-takes-its-lower-median",
        why="torch's median, which the release uses, is the lower one; others average the two (numbers, MC-GRPO).",
        method="mc_grpo",
        columns=single_step(q=[0.0, 1.0, 2.0, 3.0]),
        # b = 1; |x - b| = 1, 0, 1, 2, lower median 1; divided by 1.001.
        expect=Values([-0.999001, 0.0, 0.999001, 1.998002], SIX_DECIMALS),
        kind="convention",
    ),
    Case(
        name="an-outlier-does-not-move-the-median-credit-of-others",
        why="A median baseline is there to resist one odd reward (numbers, MC-GRPO).",
        method="mc_grpo",
        columns=single_step(q=[0.2, 60.0, 0.0, 0.9, 0.5]),
        expect=Agrees(columns=single_step(q=MEDIAN_GROUP), pairs=[(i, i) for i in (0, 2, 3, 4)], tolerance=DOUBLE),
    ),
    Case(
        name="a-mixed-group-has-total-credit-equal-to-its-size",
        why="Vector T1 of numbers, DGPO: (r - mean) / MAD_mean with MAD_mean 0.375.",
        method="dgpo",
        columns=single_step(q=T1),
        expect=Values(by_reward(T1, 2.0, -2 / 3), DOUBLE),
    ),
    Case(
        name="a-mixed-group-under-released-dgpo",
        why="The release divides by the sum of deviations + 1e-4 (numbers, DGPO).",
        method="dgpo",
        options={"reference": True},
        columns=single_step(q=T1),
        # 8 * 0.75 / 3.0001 and 8 * -0.25 / 3.0001.
        expect=Values(by_reward(T1, 1.999933, -0.666644), SIX_DECIMALS),
        kind="convention",
    ),
    Case(
        name="harder-tasks-weigh-more-under-dgpo",
        why="Vector of numbers, DGPO: accuracies 0.25 and 0.75 weigh 1.124353 and 0.875647.",
        method="dgpo",
        columns=BOTH,
        # 2 * 1.124353 and -2/3 * 1.124353; 2/3 * 0.875647 and -2 * 0.875647.
        expect=Values(by_reward(T1, 2.248706, -0.749569) + by_reward(T2, 0.583765, -1.751294), SIX_DECIMALS),
    ),
    Case(
        name="three-tasks-of-rising-accuracy-under-dgpo",
        why="Vector of numbers, DGPO: accuracies 1/8, 1/2, 7/8 weigh 1.192218, 0.988383, 0.819399.",
        method="dgpo",
        columns=single_step(a=n_of_eight(1), b=n_of_eight(4), c=n_of_eight(7)),
        # The lone correct answer has (1 - 1/8) / (2 * 7/64) = 4 times its weight, the lone wrong one -4 times; the
        # middle +-1.
        expect=Values([4.768872, 0.988383, -0.988383, -3.277595], SIX_DECIMALS, rows=[0, 8, 12, 23]),
    ),
    Case(
        name="tokens-of-constant-tasks-are-made-up-for-under-dgpo",
        why="The factor tokens of all / tokens of valid groups makes the token mean count valid groups (4.6).",
        method="dgpo",
        columns=with_columns(single_step(q=T1, solved=[1.0] * 8), tokens=[2] * 8 + [1] * 8),
        # (16 + 8) / 16 = 1.5 times 2 and -2/3; the one valid task weighs 1.
        expect=Values(by_reward(T1, 3.0, -1.0) + [0.0] * 8, DOUBLE),
    ),
    Case(
        name="a-task-with-accuracy-zero-weighs-like-one-with-accuracy-one",
        why="All wrong yet of non-zero spread through other rewards counts as accuracy 1 (numbers, DGPO).",
        method="dgpo",
        columns=with_columns(single_step(styled=[0.1, 0.0], half=[1.0, 0.0]), accuracy=[0.0, 0.0, 1.0, 0.0]),
        # DGAE +-1; softmax over -1/2 and -0.5/2, times 2: 0.875647 and 1.124353.
        expect=Values([0.875647, -0.875647, 1.124353, -1.124353], SIX_DECIMALS),
    ),
] + [
    Case(
        name=f"a-rollout-of-many-steps-counts-once-under-{method.replace('_', '-')}",
        why="Group statistics are over rollouts (R4): the lengths 1, 5, 2 and 9 change nothing.",
        method=method,
        columns=make_finished(
            {("q", "A"): (1, 1.0), ("q", "B"): (5, 0.0), ("q", "C"): (2, 0.25), ("q", "D"): (9, 0.5)}
        ),
        # Last rows of the rollouts: 0, 5, 7, 16.
        expect=Agrees(
            columns=single_step(q=[1.0, 0.0, 0.25, 0.5]), pairs=[(0, 0), (5, 1), (7, 2), (16, 3)], tolerance=DOUBLE
        ),
        trap=7,
    )
    for method in ("mc_grpo", "ngrpo", "dgpo", "a_grae")
]
