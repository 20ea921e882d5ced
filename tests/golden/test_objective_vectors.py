"""The numbers of the episode methods that conformance/numbers.md works out, through the public path.

The page rounds to 6 decimals; an absolute tolerance of 1e-5 leaves room for that.
"""

from __future__ import annotations

import pytest

from groupwise import methods
from tests.golden.tables import T0, T1, T2, TF, comparison_flags, credit, rollouts

Group = tuple[int, ...]


def near(expected: list[float]) -> object:
    return pytest.approx(expected, abs=1e-5, rel=0)


def by_outcome(group: Group, correct: float, wrong: float) -> list[float]:
    return [correct if value == 1 else wrong for value in group]


@pytest.mark.parametrize(
    ("group", "hyper", "correct", "wrong"),
    [
        (T1, {}, 1.620182, -0.540061),
        (T1, {"ddof": 0}, 1.732047, -0.577349),
        (T1, {"eps": 1e-4}, 1.619835, -0.539945),
        (T2, {}, 0.540061, -1.620182),
        (T0, {}, 0.0, 0.0),
        (TF, {}, 0.0, 0.0),
    ],
)
def test_grpo_gives_the_canonical_groups(group: Group, hyper: dict[str, object], correct: float, wrong: float) -> None:
    """numbers, GRPO, T1, T2, T0 and TF."""
    assert credit(rollouts(group), "grpo", **hyper) == near(by_outcome(group, correct, wrong))


@pytest.mark.parametrize(("method", "correct", "wrong"), [("dr_grpo", 0.75, -0.25), ("rloo", 0.857143, -0.285714)])
def test_the_unscaled_methods_give_t1(method: str, correct: float, wrong: float) -> None:
    """numbers, Dr. GRPO and RLOO, T1."""
    assert credit(rollouts(T1), method) == near(by_outcome(T1, correct, wrong))


@pytest.mark.parametrize("method", ["grpo", "dr_grpo", "rloo"])
def test_a_lone_rollout_gets_nothing_by_default_and_its_return_on_request(method: str) -> None:
    """numbers, Edges, G = 1: A = 0 (TRL) by default, A = r (verl) as a setting; neither is a comparison."""
    assert credit(rollouts((0.7,)), method) == [0.0]
    assert credit(rollouts((0.7,)), method, alone="raw") == [0.7]
    assert comparison_flags(rollouts((0.7,)), method) == [False]
    assert comparison_flags(rollouts((0.7,)), method, alone="raw") == [False]


def test_reinforce_pp_whitens_over_the_tokens_of_the_batch() -> None:
    """numbers, REINFORCE++: rewards [1,0,1,1], lengths [2,4,1,3]; token mean 0.6, variance 0.266667."""
    table = rollouts((1, 0), (1, 1), tokens=[2, 4, 1, 3])
    assert credit(table, "reinforce_pp") == near([0.774597, -1.161895, 0.774597, 0.774597])


def test_reinforce_pp_baseline_centres_by_task_first() -> None:
    """numbers, REINFORCE++, groups {0,1} and {2,3}; token mean -0.1, variance 0.155556."""
    table = rollouts((1, 0), (1, 1), tokens=[2, 4, 1, 3])
    assert credit(table, "reinforce_pp_baseline") == near([1.521278, -1.014185, 0.253546, 0.253546])


@pytest.mark.parametrize(
    ("hyper", "expected"),
    [
        ({}, [*by_outcome(T1, 0.638899, -0.425932), *by_outcome(T2, 0.212966, -1.277797)]),
        ({"reference": True}, [*by_outcome(T1, 0.810089, -0.540059), *by_outcome(T2, 0.581831, -3.490983)]),
        # Without attenuation (w / alpha >= 1) the credit is A itself.
        ({"alpha": 0.5}, [*by_outcome(T1, 1.277797, -0.425932), *by_outcome(T2, 0.425932, -1.277797)]),
    ],
)
def test_a_grae_weighs_hard_and_easy_tasks(hyper: dict[str, object], expected: list[float]) -> None:
    """numbers, A-GRAE, batch {T1, T2}, w = 0.5: A*, the code variant, and A."""
    assert credit(rollouts(T1, T2), "a_grae", **hyper) == near(expected)


def test_a_grae_attenuates_less_when_the_batch_succeeds_more() -> None:
    """numbers, A-GRAE, w = 0.8, alpha = 0.5, T1: 22 solved rollouts beside T1 make 24 of 30 succeed."""
    values = credit(rollouts(T1, (1,) * 22), "a_grae", alpha=0.5)
    assert values == near([*by_outcome(T1, 1.483228, -0.494409), *[0.0] * 22])


@pytest.mark.parametrize("reference", [False, True])
@pytest.mark.parametrize(
    ("group", "correct", "wrong"),
    [(T0, 0.0, -0.333332), (T1, 1.333331, -0.666665), (T2, 0.503951, -1.763830), (TF, 0.0, 0.0)],
)
def test_ngrpo_compares_with_a_virtual_success(group: Group, correct: float, wrong: float, reference: bool) -> None:
    """numbers, NGRPO, T0, T1, T2 and TF."""
    assert credit(rollouts(group), "ngrpo", reference=reference) == near(by_outcome(group, correct, wrong))


def test_a_lone_rollout_of_ngrpo_meets_its_virtual_peer_and_keeps_its_reward_in_the_release() -> None:
    """numbers, NGRPO, G = 1: the group {0, 1} gives -0.5 / 0.707108 = -0.707106; the code gives r."""
    assert credit(rollouts((0,)), "ngrpo") == near([-0.707106])
    assert credit(rollouts((0.25,)), "ngrpo", reference=True) == [0.25]


def test_ngrpo_trains_on_failed_tasks_and_leaves_out_solved_ones() -> None:
    """numbers, NGRPO: groups that are all correct are filtered out, all-wrong groups are kept."""
    kept = methods.ngrpo().keep(rollouts(T0, TF, T1))
    assert [bool(flag) for flag in kept] == [True] * 8 + [False] * 8 + [True] * 8


def test_mc_grpo_measures_from_the_median_in_median_deviations() -> None:
    """numbers, MC-GRPO: r = [0.2,1,0,0.9,0.5], median 0.5, MAD 0.4, pivot index 4."""
    table = rollouts((0.2, 1, 0, 0.9, 0.5))
    expected = [-0.748130, 1.246883, -1.246883, 0.997506, 0.0]
    assert credit(table, "mc_grpo") == near(expected)
    assert credit(table, "mc_grpo", reference=True) == near(expected)
    assert [bool(flag) for flag in methods.mc_grpo().keep(table)] == [True, True, True, True, False]


def test_mc_grpo_falls_back_to_the_deviation_where_the_release_explodes() -> None:
    """numbers, MC-GRPO: r = [1,0,0] has MAD 0: [1.732051,0,0] here, [1000,0,0] in the release, one zero dropped."""
    table = rollouts((1, 0, 0))
    assert credit(table, "mc_grpo") == near([1.732051, 0.0, 0.0])
    assert credit(table, "mc_grpo", reference=True) == near([1000.0, 0.0, 0.0])
    assert [bool(flag) for flag in methods.mc_grpo().keep(table)] == [True, False, True]


DQW_PAIR = [1.124353, 0.875647]
DQW_TRIPLE = [1.192218, 0.988383, 0.819399]


def test_dgpo_alone_gives_every_mixed_task_the_same_total() -> None:
    """numbers, DGPO, T1: +2 / -0.666667, code eps 1.999933 / -0.666644; T2: +0.666667 / -2."""
    assert credit(rollouts(T1), "dgpo") == near(by_outcome(T1, 2.0, -0.666667))
    assert credit(rollouts(T1), "dgpo", reference=True) == near(by_outcome(T1, 1.999933, -0.666644))
    assert credit(rollouts(T2), "dgpo") == near(by_outcome(T2, 0.666667, -2.0))


def test_dgpo_weighs_hard_tasks_more() -> None:
    """numbers, DGPO, DQW acc [0.25, 0.75] at T = 2: [1.124353, 0.875647], here on T1 and T2."""
    hard, easy = DQW_PAIR
    expected = [*by_outcome(T1, 2 * hard, -2 / 3 * hard), *by_outcome(T2, 2 / 3 * easy, -2 * easy)]
    assert credit(rollouts(T1, T2), "dgpo") == near(expected)


def test_dgpo_weighs_three_tasks_by_their_accuracies() -> None:
    """numbers, DGPO, DQW acc [.125, .5, .875]: [1.192218, 0.988383, 0.819399], the weight as mean |A|."""
    groups = [tuple(int(rollout < correct) for rollout in range(8)) for correct in (1, 4, 7)]
    values = credit(rollouts(*groups), "dgpo")
    weights = [sum(abs(value) for value in values[8 * task : 8 * task + 8]) / 8 for task in range(3)]
    assert weights == near(DQW_TRIPLE)


def test_dgpo_spreads_the_tokens_of_constant_tasks_over_the_mixed_ones() -> None:
    """numbers, DGPO: the factor is tokens of all groups / tokens of valid groups; here 24 + 8 over 24."""
    table = rollouts(T1, TF, tokens=[3] * 8 + [1] * 8)
    factor = 32 / 24
    assert credit(table, "dgpo") == near([*by_outcome(T1, 2 * factor, -2 / 3 * factor), *[0.0] * 8])


def test_dgpo_reads_an_accuracy_of_zero_as_one() -> None:
    """numbers, DGPO: all wrong but mixed through other rewards counts as acc = 1, the lowest weight."""
    table = rollouts(T1, T1, accuracy=[0.0] * 8 + [0.5] * 8)
    values = credit(table, "dgpo")
    weights = [values[0] / 2, values[8] / 2]
    # 2 softmax(-1/2, -0.5/2): 2 / (1 + exp(0.25)) and the rest of 2.
    assert weights == near([0.875647, 1.124353])


ONE_OF_FOUR = (1, 0, 0, 0)


@pytest.mark.parametrize(
    ("method", "hyper", "correct", "wrong"),
    [
        ("rec", {}, 0.75, -0.25),
        ("opmd", {}, 0.75, -0.25),
        ("opmd", {"baseline": "log_mean_exp"}, 1 - 0.357374, -0.357374),
        ("asymre", {}, 0.85, -0.15),
        ("red_weight", {}, 1.587750, -0.194700),
    ],
)
def test_off_policy_reinforce_gives_one_of_four(
    method: str, hyper: dict[str, object], correct: float, wrong: float
) -> None:
    """numbers, Off-policy REINFORCE."""
    assert credit(rollouts(ONE_OF_FOUR), method, **hyper) == near(by_outcome(ONE_OF_FOUR, correct, wrong))
