"""The numbers of the step-level methods that conformance/numbers.md works out, through the public path.

The page rounds to 4 decimals, hence the tolerance. The episode methods are in the file beside this.
"""

from __future__ import annotations

import pytest

import groupwise
from tests.golden.tables import STEPS, comparison_flags, credit, rollouts, three_rollouts

FOUR_DECIMALS = 5.1e-5

PAPER_MEAN_ONLY = [2.97, 4.0, 0.0, -5.13, -5.0, 2.16, 0.0, 3.0, 0.0]
PAPER_Z = [0.8154, 0.9024, 0.0, -1.4084, -1.1381, 0.5930, 0.0, 0.7071, 0.0]
RELEASE_MEAN_ONLY = [2.97, 3.9, 0.0, -5.13, -5.1, 2.16, 0.0, 3.0, 0.0]
RELEASE_Z = [0.8154, 0.8828, 0.0, -1.4084, -1.1657, 0.5930, 0.0, 0.7071, 0.0]
LEVEL_0_MEAN_ONLY = [2.97, 3.0, 0.0, -5.13, -6.0, 2.16, 0.0, 3.0, 0.0]
LEVEL_0_Z = [0.8154, 0.7071, 0.0, -1.4084, -1.4142, 0.5930, 0.0, 0.7071, 0.0]


MUGS = ("You are in the kitchen. You see a mug 1.", "You are in the kitchen. You see a mug 2.")


def near(expected: float | list[float], tolerance: float = FOUR_DECIMALS) -> object:
    return pytest.approx(expected, abs=tolerance, rel=0)


@pytest.mark.parametrize(
    ("hyper", "expected"),
    [
        ({"scale": "none"}, PAPER_MEAN_ONLY),
        ({"scale": "std"}, PAPER_Z),
        ({"scale": "none", "depth": 0}, LEVEL_0_MEAN_ONLY),
        ({"scale": "std", "depth": 0}, LEVEL_0_Z),
    ],
)
def test_hgpo_gives_the_paper_columns_of_its_table(hyper: dict[str, object], expected: list[float]) -> None:
    """numbers, Routes, gamma 0.9, K = 2, alpha = 1: the paper weights and the level-0 columns."""
    assert credit(three_rollouts(), "hgpo", gamma=0.9, **hyper) == near(expected)


@pytest.mark.parametrize(("scale", "expected"), [("none", RELEASE_MEAN_ONLY), ("std", RELEASE_Z)])
def test_hgpo_reference_gives_the_released_columns_of_its_table(scale: str, expected: list[float]) -> None:
    """numbers, Routes, the columns of code weights (n+1)."""
    values = credit(three_rollouts(), "hgpo", gamma=0.9, scale=scale, reference=True)
    # The release adds 1e-6 to the sum of weights, 2 at the least: half a millionth of 5.13, inside the
    # tolerance.
    assert values == near(expected)


def test_hgpo_compares_every_step_of_its_table_but_the_lone_visit_of_s3() -> None:
    """numbers, Routes: C1 is a singleton at each level; A2 and C3 tie, which is a comparison of value 0."""
    flags = dict(zip(STEPS, comparison_flags(three_rollouts(), "hgpo", gamma=0.9), strict=True))
    assert flags == {name: name != "C1" for name in STEPS}


def three_levels(deviations: tuple[float, float, float]) -> groupwise.StepTable:
    """A table whose first row has the given mean-only level credits at k = 0, 1, 2.

    T shares (x, y, z) with U, (y, z) also with V, z also with W. For T of return 0 the level means must be minus the
    deviations d0, d1, d2: U = -2 d2, U + V = -3 d1, U + V + W = -4 d0.
    """
    d0, d1, d2 = deviations
    last = {"T": 0.0, "U": -2 * d2, "V": -3 * d1 + 2 * d2, "W": -4 * d0 + 3 * d1}
    path = {"T": "xyz", "U": "xyz", "V": "vyz", "W": "wuz"}
    names = [(rollout, index) for index in (2, 1, 0) for rollout in "TUVW"]
    return groupwise.StepTable.from_columns(
        task=[0] * 12,
        rollout=[rollout for rollout, _ in names],
        step=[index for _, index in names],
        state=[path[rollout][index] for rollout, index in names],
        reward=[last[rollout] if index == 2 else 0.0 for rollout, index in names],
    )


@pytest.mark.parametrize(
    ("hyper", "expected"),
    [
        ({"alpha": 0.0}, 0.4333),
        ({"alpha": 1.0}, 0.3167),
        ({"alpha": 2.0}, 0.1929),
        ({"alpha": 1.0, "reference": True}, 0.3556),
        ({"alpha": 2.0, "reference": True}, 0.2690),
    ],
)
def test_hgpo_blends_three_levels_with_the_weights_of_the_paper_and_of_the_release(
    hyper: dict[str, object], expected: float
) -> None:
    """numbers, Routes, aggregation only: level credits (0.5, 1.0, -0.2)."""
    table = three_levels((0.5, 1.0, -0.2))
    assert credit(table, "hgpo", gamma=1.0, scale="none", **hyper)[0] == near(expected)


@pytest.mark.parametrize(
    ("hyper", "expected"),
    [({}, -0.1 / 6), ({"skip_average": True}, -0.1 / 4), ({"reference": True}, 0.2 / 6)],
)
def test_hgpo_leaves_out_a_level_on_which_the_step_is_average_if_asked(
    hyper: dict[str, object], expected: float
) -> None:
    """Level credits (0.5, 0, -0.2) with weights 1, 2, 3, and 2, 3, 4 in the release: as the paper's experiments do."""
    table = three_levels((0.5, 0.0, -0.2))
    assert credit(table, "hgpo", gamma=1.0, scale="none", **hyper)[0] == near(expected)


@pytest.mark.parametrize("reference", [False, True])
def test_hgpo_puts_the_episode_entry_at_weight_one(reference: bool) -> None:
    """numbers, Routes, base_group on: entries 0.5774, 0.8154, 1.0 with weights 1, 2, 3 give 0.8680."""
    # Returns 0, -2, W of T, U, W: in z the mean is -0.8154, in (x, z) it is -1. Outcomes 0.8661, 0, 0: mean
    # 0.2887.
    last = {"T": 0.0, "U": -2.0, "W": 2.0 - 3 * 0.8154}
    outcome = {"T": 1.5 * 0.5774, "U": 0.0, "W": 0.0}
    path = {"T": "xz", "U": "xz", "W": "wz"}
    names = [("T", 1), ("T", 0), ("U", 1), ("U", 0), ("W", 1), ("W", 0)]
    table = groupwise.StepTable.from_columns(
        task=["q"] * 6,
        rollout=[rollout for rollout, _ in names],
        step=[index for _, index in names],
        state=[path[rollout][index] for rollout, index in names],
        reward=[last[rollout] if index else 0.0 for rollout, index in names],
        outcome=[outcome[rollout] for rollout, _ in names],
    )
    hyper = {"gamma": 1.0, "scale": "none", "depth": 1, "episode": True, "reference": reference}
    assert credit(table, "hgpo", **hyper)[0] == near(0.8680)


EPISODE_ROWS = [0.5040, 0.5040, 0.5040, -1.7638, -1.7638, 0.5040, 0.5040, 0.5040, 0.5040]
EPISODE_ROLLOUTS = [0.5774, 0.5774, 0.5774, -1.1547, -1.1547, 0.5774, 0.5774, 0.5774, 0.5774]
STATE_Z = [0.6658, 0.5774, 0.0, -1.1499, -1.1547, 0.4842, 0.0, 0.5774, 0.0]
TOTAL = [1.2431, 1.1547, 0.5774, -2.3046, -2.3094, 1.0615, 0.5774, 1.1547, 0.5774]


@pytest.mark.parametrize(
    ("hyper", "expected"),
    [
        ({}, TOTAL),
        ({"step_weight": 0.0}, EPISODE_ROLLOUTS),
        ({"step_weight": 0.0, "reference": True}, EPISODE_ROWS),
        ({"reference": True}, [e + s for e, s in zip(EPISODE_ROWS, STATE_Z, strict=True)]),
    ],
)
def test_gigpo_gives_the_columns_of_its_table(hyper: dict[str, object], expected: list[float]) -> None:
    """numbers, Routes, gamma 0.9: A (traj E + z), A^E trajectories, A^E rows, and rows E + z, the release."""
    assert credit(three_rollouts(), "gigpo", gamma=0.9, **hyper) == near(expected, 2 * FOUR_DECIMALS)


@pytest.mark.parametrize(("scale", "expected"), [("none", LEVEL_0_MEAN_ONLY), ("std", STATE_Z)])
def test_the_state_term_of_gigpo_gives_its_column(scale: str, expected: list[float]) -> None:
    """numbers, Routes: A^S mean-only and A^S sample-z, as the difference between step weights 1 and 0."""
    hyper = {"gamma": 0.9, "scale": scale}
    whole = credit(three_rollouts(), "gigpo", step_weight=1.0, **hyper)
    episode = credit(three_rollouts(), "gigpo", step_weight=0.0, **hyper)
    assert [a - b for a, b in zip(whole, episode, strict=True)] == near(expected)


@pytest.mark.parametrize("method", ["gagpo", "hgae"])
@pytest.mark.parametrize(
    ("lam", "expected"),
    [
        (0.0, [0.27, 3, 0, 0.27, -6, 2.16, -2.7, 3, 0]),
        (0.5, [1.62, 3, 0, -2.43, -6, 1.5525, -1.35, 3, 0]),
        (1.0, LEVEL_0_MEAN_ONLY),
    ],
)
def test_gagpo_gives_the_columns_of_its_table(method: str, lam: float, expected: list[float]) -> None:
    """numbers, GAGPO, gamma 0.9: one difference, half of what follows, all of it; HGAE without history is the same."""
    hyper = {"depth": 0} if method == "hgae" else {}
    assert credit(three_rollouts(), method, gamma=0.9, lam=lam, scale_by="none", **hyper) == near(expected, 1e-12)


@pytest.mark.parametrize(
    ("hyper", "expected"),
    [
        ({"lam": 0.0}, [-0.63, 4, 0, -0.63, -5, 2.16, -2.7, 3, 0]),
        ({"lam": 0.5}, [1.17, 4, 0, -2.88, -5, 1.5525, -1.35, 3, 0]),
        ({"lam": 1.0}, PAPER_MEAN_ONLY),
        ({"lam": 1.0, "leave_out": True}, [4.455, 7.5, 0, -7.695, -9, 3.24, 0, 4.5, 0]),
    ],
)
def test_hgae_gives_the_columns_of_its_table(hyper: dict[str, object], expected: list[float]) -> None:
    """numbers, GAGPO, gamma 0.9, depth 2, alpha 1: A's and B's second steps have V = (6 + 2 x 4.5) / 3 = 5."""
    assert credit(three_rollouts(), "hgae", gamma=0.9, scale_by="none", **hyper) == near(expected, 1e-12)


def test_shrunk_values_borrow_from_coarser_levels() -> None:
    """numbers, GAGPO, strength 1, depth 1, lambda 0: s0 is worth 5.5556, s1 after it 5.0694."""
    hyper = {"gamma": 0.9, "strength": 1.0, "depth": 1, "scale_by": "none"}
    values = dict(zip(STEPS, credit(three_rollouts(), "shrunk_hgae", **hyper), strict=True))
    assert [values["A0"], values["B0"]] == near([-0.9931] * 2)
    assert values["B1"] == near(-5.0694)
    # C1 is alone in s3: (8.1 + 6.8322) / 2, and once more with its past: (8.1 + 7.4661) / 2 = 7.7831.
    # C2 stands in s1 after s3, alone: (9 + 6.2081) / 2 = 7.6040, and 0.9 x 7.6040 - 7.7831 = -0.9394.
    assert values["C1"] == near(-0.9394)


def test_gagpo_divides_by_the_root_mean_square_of_the_task_or_of_the_state() -> None:
    """numbers, GAGPO: at lam 0 the nine differences have root mean square 2.71010; those of s1, 3, -6, 3: 4.24264."""
    by_task = credit(three_rollouts(), "gagpo", gamma=0.9, lam=0.0)
    assert by_task == near([0.0996, 1.1070, 0, 0.0996, -2.2139, 0.7970, -0.9963, 1.1070, 0])
    by_state = credit(three_rollouts(), "gagpo", gamma=0.9, lam=0.0, scale_by="state")
    assert by_state == near([0.2132, 0.7071, 0, 0.2132, -1.4142, 1.7056, 0, 0.7071, 0])


@pytest.mark.parametrize(
    ("states", "reference", "are_merged"),
    [
        (MUGS, False, False),
        (MUGS, True, True),
        (("You arrive at desk 1.", "You arrive at shelf 12."), True, False),
        (("You arrive at desk 1.", "You arrive at shelf 12."), False, False),
        ((MUGS[0], "You are in the kitchens. You see a mug 1."), False, True),
    ],
)
def test_states_that_differ_by_a_number_are_merged_only_in_the_release(
    states: tuple[str, str], reference: bool, are_merged: bool
) -> None:
    """numbers, GiGPO released, difflib at 0.95: mug 1 / mug 2 is 0.975, desk 1 / shelf 12 is 0.8182."""
    table = groupwise.StepTable.from_columns(
        task=["q", "q"], rollout=[0, 1], step=[0, 0], state=list(states), reward=[1.0, 0.0]
    )
    hyper = {"scale": "none", "similarity": 0.95, "reference": reference}
    state_term = 0.5 if are_merged else 0.0
    assert credit(table, "gigpo", **hyper) == near([0.5 + state_term, -0.5 - state_term], 1e-12)


def test_grpo_and_rloo_check_of_the_shared_conventions() -> None:
    """numbers, GRPO: rewards [1,0,0,1], GRPO with sample std +-0.8660, population std +-1, RLOO +-0.6667."""
    table, signs = rollouts((1, 0, 0, 1)), [1, -1, -1, 1]
    assert credit(table, "grpo") == near([sign * 0.8660 for sign in signs])
    assert credit(table, "grpo", ddof=0) == near([sign * 1.0 for sign in signs])
    assert credit(table, "rloo") == near([sign * 0.6667 for sign in signs])


def test_salt_tempers_the_edges_that_good_and_bad_rollouts_share() -> None:
    """numbers, SALT: edges T1 a,b,c; T2 a,b,d; T3 a,e; T4 a,b,f, rewards [1,1,0,0]."""
    paths = {1: "abc", 2: "abd", 3: "ae", 4: "abf"}
    names = [(rollout, index) for rollout, path in paths.items() for index in range(len(path))]
    table = groupwise.StepTable.from_columns(
        task=["q"] * len(names),
        rollout=[rollout for rollout, _ in names],
        step=[index for _, index in names],
        state=[f"s{index}" for _, index in names],
        action=[paths[rollout][index] for rollout, index in names],
        reward=[float(rollout <= 2 and index == len(paths[rollout]) - 1) for rollout, index in names],
    )
    by_edge = {"a": 0.0, "b": 0.2887, "c": 0.8660, "d": 0.8660, "e": -0.8660, "f": -0.8660}
    expected = [by_edge[paths[rollout][index]] for rollout, index in names]
    assert credit(table, "salt") == near(expected)
    assert credit(table, "salt", next_state=False, history=0) == near(expected)


def test_step_grpo_gives_the_vector_of_the_router() -> None:
    """numbers, Step-GRPO: r = [0.95, 0.40, 0.80, 0] at one step prompt."""
    assert credit(rollouts((0.95, 0.40, 0.80, 0)), "step_grpo") == near([0.9661, -0.3220, 0.6148, -1.2589])


def test_flow_grpo_compares_rollouts_and_the_release_compares_rows() -> None:
    """numbers, Flow-GRPO: R = [1, 0] with 2 and 4 turns."""
    table = groupwise.StepTable.from_columns(
        task=["q"] * 6, rollout=[0, 0, 1, 1, 1, 1], step=[0, 1, 0, 1, 2, 3], reward=[0, 1, 0, 0, 0, 0]
    )
    assert credit(table, "flow_grpo") == near([0.7071] * 2 + [-0.7071] * 4)
    assert credit(table, "flow_grpo", reference=True) == near([1.2910] * 2 + [-0.6455] * 4)


@pytest.mark.parametrize("tokens", [None, [3, 2, 4, 1]])
def test_mars_centres_on_the_distinct_values_whatever_the_token_counts(tokens: list[int] | None) -> None:
    """numbers, MARS: turn returns [1.0, 0.8] and [-1.0, -0.5]; their rewards have mean 0, so step 1 is idle."""
    extra = {} if tokens is None else {"tokens": tokens}
    table = groupwise.StepTable.from_columns(
        task=["game"] * 4, rollout=[0, 0, 1, 1], step=[0, 1, 0, 1], reward=[0.2, 0.8, -0.5, -0.5], **extra
    )
    assert credit(table, "mars") == near([0.925, 0.725, -1.075, -0.575], 1e-6)


def test_mars_centres_rewards_game_by_game_and_credit_over_all_games() -> None:
    """One player, rewards 1, 0, 0 in one game and 5, 1 in another, one turn a rollout.

    Less the means 1/3 and 3: 2/3, -1/3, -1/3 and 2, -2. The distinct values 2/3, -1/3, 2, -2 have mean 1/12.
    """
    table = groupwise.StepTable.from_columns(
        task=["a"] * 3 + ["b"] * 2, rollout=[0, 1, 2, 0, 1], step=[0] * 5, reward=[1, 0, 0, 5, 1], role=["white"] * 5
    )
    assert credit(table, "mars") == near([7 / 12, -5 / 12, -5 / 12, 23 / 12, -25 / 12], 1e-6)
