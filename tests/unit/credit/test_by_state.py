"""Grouping by state, exactly and by similarity, with the traps of the released clustering."""

from __future__ import annotations

from difflib import SequenceMatcher

import pytest

from groupwise import ConfigError, RecordError
from groupwise.credit import ByState
from tests.unit.tables import number_groups, table, walks

MUG_1 = "You are in the kitchen. You see a mug 1."
MUG_2 = "You are in the kitchen. You see a mug 2."
DESK = "You arrive at desk 1."
SHELF = "You arrive at shelf 12."


def test_equal_states_of_a_task_are_one_group_and_none_has_no_group() -> None:
    rows = table(
        "task rollout step state reward",
        ("a", 0, 0, "s", 0.0),
        ("a", 0, 1, None, 0.0),
        ("a", 1, 0, "s", 0.0),
        ("a", 1, 1, "S", 0.0),
        ("b", 0, 0, "s", 0.0),
    )
    assert number_groups(ByState(), rows) == [0, -1, 0, 1, 2]


def test_a_table_without_states_has_no_groups() -> None:
    rows = table("task rollout step reward", ("a", 0, 0, 0.0), ("a", 1, 0, 0.0))
    assert number_groups(ByState(), rows) == [-1, -1]
    assert number_groups(ByState(similarity=0.5), rows) == [-1, -1]


def test_two_mugs_are_nearly_the_same_text_and_two_states() -> None:
    # The two texts have 40 characters, 39 in common: ratio 2 x 39 / 80 = 0.975.
    assert SequenceMatcher(None, MUG_1, MUG_2).ratio() == 0.975
    rows = walks([MUG_1], [MUG_2], [MUG_1])
    assert number_groups(ByState(similarity=0.9), rows) == [0, 1, 0]


def test_without_the_rule_on_numbers_two_mugs_become_one_state_as_released() -> None:
    rows = walks([MUG_1], [MUG_2], [MUG_1])
    assert number_groups(ByState(similarity=0.9, same_numbers=False), rows) == [0, 0, 0]


def test_a_ratio_equal_to_the_threshold_joins_and_one_below_it_does_not() -> None:
    rows = walks([MUG_1], [MUG_2])
    assert number_groups(ByState(similarity=0.975, same_numbers=False), rows) == [0, 0]
    assert number_groups(ByState(similarity=0.9750001, same_numbers=False), rows) == [0, 1]


def test_the_cheap_bounds_let_pass_what_just_reaches_the_threshold() -> None:
    # aaa lies within aaaa: every bound is 2 x 3 / 7, as is the ratio itself.
    assert number_groups(ByState(similarity=6 / 7), walks(["aaaa"], ["aaa"])) == [0, 0]


def test_a_desk_and_a_shelf_are_less_alike_and_kept_apart_by_ratio_and_by_number() -> None:
    # 21 and 23 characters, 18 in common: ratio 2 x 18 / 44 = 0.8182.
    assert SequenceMatcher(None, SHELF, DESK).ratio() == 36 / 44
    rows = walks([DESK], [SHELF])
    assert number_groups(ByState(similarity=0.9, same_numbers=False), rows) == [0, 1]
    assert number_groups(ByState(similarity=0.82, same_numbers=False), rows) == [0, 1]
    assert number_groups(ByState(similarity=0.81, same_numbers=False), rows) == [0, 0]
    assert number_groups(ByState(similarity=0.81), rows) == [0, 1]


def test_numbers_must_be_equal_in_the_same_order_and_digit_runs_count_whole() -> None:
    near = [
        "from desk 1 to shelf 12 with a very long tail of text",
        "from desk 12 to shelf 1 with a very long tail of text",
        "from desk 1 to shelf 1 with a very long tail of text",
        "from desk 01 to shelf 12 with a very long tail of text",
        "From desk 1 to shelf 12 with a very long tail of text",
    ]
    assert number_groups(ByState(similarity=0.8), walks(*([text] for text in near))) == [0, 1, 2, 3, 0]


def test_a_state_is_compared_with_representatives_only_and_joins_the_first() -> None:
    # aaaaaaaa opens a cluster; aaaaaabb (ratio 0.75) opens the next at 0.8; aaaaaaab is within 0.875 of both
    # and joins the first.
    rows = walks(["aaaaaaaa"], ["aaaaaabb"], ["aaaaaaab"])
    assert SequenceMatcher(None, "aaaaaabb", "aaaaaaaa").ratio() == 0.75
    assert SequenceMatcher(None, "aaaaaaab", "aaaaaabb").ratio() == 0.875
    assert number_groups(ByState(similarity=0.8), rows) == [0, 1, 0]


def test_clusters_do_not_chain_through_a_member_that_is_no_representative() -> None:
    # aaaaaaab joins aaaaaaaa; aaaaaabb is near the member aaaaaaab, but only 0.75 from the representative.
    rows = walks(["aaaaaaaa"], ["aaaaaaab"], ["aaaaaabb"])
    assert number_groups(ByState(similarity=0.8), rows) == [0, 0, 1]


def test_the_walk_is_in_the_order_of_the_table_not_of_the_rows() -> None:
    rows = table(
        "task rollout step state reward",
        ("q", 2, 0, "aaaaaabb", 0.0),
        ("q", 1, 0, "aaaaaaab", 0.0),
        ("q", 0, 0, "aaaaaaaa", 0.0),
    )
    # Steps come out in the order aaaaaaaa, aaaaaaab, aaaaaabb.
    assert number_groups(ByState(similarity=0.8), rows) == [0, 0, 1]


def test_a_state_met_again_later_opens_no_second_cluster() -> None:
    # The states are numbered zz, aaaaaaab, aaaaaaaa; the task's walk meets aaaaaaab before aaaaaaaa again.
    rows = walks(["zz", "aaaaaaab", "aaaaaaaa", "zz", "aaaaaaaa"])
    assert number_groups(ByState(similarity=0.8), rows) == [0, 1, 1, 0, 1]


def test_clusters_of_two_tasks_never_mix() -> None:
    rows = table(
        "task rollout step state reward",
        ("a", 0, 0, "aaaaaaaa", 0.0),
        ("b", 0, 0, "aaaaaaab", 0.0),
        ("b", 1, 0, "aaaaaaaa", 0.0),
    )
    assert number_groups(ByState(similarity=0.8), rows) == [0, 1, 1]


def test_a_cluster_keeps_its_own_representative_in_each_task() -> None:
    # In task a the cluster of aaaaaaaa takes in aaaaaaab. Task b starts from aaaaaabb, which takes in aaaaaaab.
    rows = table(
        "task rollout step state reward",
        ("a", 0, 0, "aaaaaaaa", 0.0),
        ("a", 0, 1, "aaaaaaab", 0.0),
        ("b", 0, 0, "aaaaaabb", 0.0),
        ("b", 0, 1, "aaaaaaab", 0.0),
        ("b", 0, 2, "aaaaaaaa", 0.0),
    )
    assert number_groups(ByState(similarity=0.8), rows) == [0, 0, 1, 1, 2]


def test_states_of_none_stay_out_of_every_cluster() -> None:
    assert number_groups(ByState(similarity=0.5), walks(["aa", None, "aa"])) == [0, -1, 0]


def test_the_ratio_is_taken_from_the_new_state_to_the_representative() -> None:
    # difflib's ratio is not symmetric: tide to diet 0.25, diet to tide 0.5.
    assert SequenceMatcher(None, "tide", "diet").ratio() == 0.25
    assert SequenceMatcher(None, "diet", "tide").ratio() == 0.5
    assert number_groups(ByState(similarity=0.4), walks(["diet"], ["tide"])) == [0, 1]
    assert number_groups(ByState(similarity=0.4), walks(["tide"], ["diet"])) == [0, 0]


def test_similarity_needs_text() -> None:
    for first in (("a", 1), "a"):
        with pytest.raises(RecordError) as caught:
            ByState(similarity=0.5)(walks([first], [("a", 2)]))
        assert str(caught.value) == "state ('a', 2) is not text; grouping by similarity needs text states"


@pytest.mark.parametrize(
    ("similarity", "message"), [(0.0, "greater than 0, found 0.0"), (1.0, "less than 1, found 1.0")]
)
def test_similarity_lies_strictly_between_0_and_1(similarity: float, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ByState(similarity=similarity)
    assert str(caught.value) == f"ByState: similarity: expected a number {message}"


def test_a_ratio_that_just_reaches_the_threshold_is_similar() -> None:
    # "aaaa" and "aa" have 2 x 2 / 6 = 2/3, and so has every cheap upper bound of it.
    assert number_groups(ByState(similarity=2 / 3), walks(["aaaa"], ["aa"])) == [0, 0]


def test_a_state_that_is_not_text_is_named_whichever_of_the_two_it_is() -> None:
    for states in ([("x", 1), "text"], ["text", ("x", 1)]):
        with pytest.raises(RecordError) as caught:
            ByState(similarity=0.5)(walks([states[0]], [states[1]]))
        assert str(caught.value) == "state ('x', 1) is not text; grouping by similarity needs text states"


def test_a_state_that_one_rollout_visits_alone_may_be_left_without_a_group() -> None:
    rows = walks("abb", "acd")
    assert number_groups(ByState(), rows) == [0, 1, 1, 0, 2, 3]
    assert number_groups(ByState(peers="other_rollouts"), rows) == [0, -1, -1, 0, -1, -1]


def test_a_group_of_two_rollouts_keeps_every_visit_of_each() -> None:
    assert number_groups(ByState(peers="other_rollouts"), walks("bb", "b", "cc")) == [0, 0, 0, -1, -1]


def test_the_same_state_at_two_tasks_is_no_meeting() -> None:
    rows = table("task rollout step state reward", ("p", 0, 0, "s", 0.0), ("p", 0, 1, "s", 0.0), ("q", 1, 0, "s", 0.0))
    assert number_groups(ByState(peers="other_rollouts"), rows) == [-1, -1, -1]


def test_near_states_of_two_rollouts_are_a_meeting() -> None:
    rows = walks([MUG_1, DESK, DESK], [MUG_2])
    part = ByState(similarity=0.9, same_numbers=False, peers="other_rollouts")
    assert number_groups(part, rows) == [0, -1, -1, 0]


def test_peers_are_one_of_two_words() -> None:
    with pytest.raises(ConfigError) as caught:
        ByState(peers="others")  # type: ignore[arg-type]
    assert str(caught.value) == "ByState: peers: expected 'any' or 'other_rollouts', found 'others'"
