"""Ranked lists: items read out of any text, the textbook's NDCG, the info of a list, and what is refused."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise import ConfigError, Task
from groupwise.envs import RankedLists
from groupwise.envs.kit.words import split_words
from groupwise.envs.small.ranked_lists import (
    COLOURS,
    PROPERTIES,
    SORTS,
    THINGS,
    Gain,
    judge_relevance,
    read_list,
    score_order,
)
from groupwise.envs.small.ranked_lists import THING_SIZES as SIZES

OFFERED = {"cherry": 3, "frog": 1, "fire engine": 1, "egg": 2, "piano": 0}
degrees = st.lists(st.integers(0, 3), min_size=1, max_size=6)


def task_of(wanted: tuple[str, str, str], *offered: str) -> Task:
    return Task.create(env="ranked_lists", payload={"wanted": list(wanted), "offered": list(offered)})


FOOD = task_of(("red", "food", "small"), "piano", "fire engine", "egg", "cherry", "frog")


@pytest.mark.parametrize(
    ("answer", "names", "relevance", "texts"),
    [
        ("cherry ; egg", "cherry|egg", [3, 2], ["cherry ;", " egg"]),
        ("cherry\negg\n", "cherry|egg", [3, 2], ["cherry\n", "egg\n"]),
        ("1. Cherry;\n2) fire-engine.", "cherry|fire engine", [3, 1], ["1. Cherry;\n", "2) fire-engine."]),
        ("1 . cherry ; 2 . egg", "cherry|egg", [3, 2], ["1 . cherry ;", " 2 . egg"]),  # as the word tokenizer says it
        ("egg ; egg ; cherry", "egg|egg|cherry", [2, 0, 3], ["egg ;", " egg ;", " cherry"]),  # again: nothing
        ("egg ; boat ; cherry", "egg||cherry", [2, 0, 3], ["egg ;", " boat ;", " cherry"]),  # not offered
        ("egg cherry", "", [0], ["egg cherry"]),  # two things are no item
        ("egg ; ; \n cherry ;;", "egg|cherry", [2, 3], ["egg ; ; \n", " cherry ;;"]),
        ("; egg", "egg", [2], ["; egg"]),
        ("", None, [], []),
        (" ;\n; ", None, [], []),
    ],
)
def test_items_are_read_in_their_order(answer: str, names: str | None, relevance: list[int], texts: list[str]) -> None:
    read = read_list(answer, OFFERED)
    assert list(read.names) == ([] if names is None else names.split("|"))
    assert list(read.relevance) == relevance
    assert [answer[begin:end] for begin, end in read.spans] == texts


@given(text=st.text(max_size=60) | st.text(alphabet="chery eg;\n1.", max_size=120))
def test_any_text_can_be_read_and_its_items_lie_side_by_side(text: str) -> None:
    read = read_list(text, OFFERED)
    assert len(read.names) == len(read.relevance) == len(read.spans)
    if read.spans:
        assert "".join(text[begin:end] for begin, end in read.spans) == text
    assert {name for name in read.names if name} <= OFFERED.keys()
    first = {name: read.names.index(name) for name in read.names if name}
    assert [n for n, degree in enumerate(read.relevance) if degree] == sorted(
        first[name] for name in first if OFFERED[name]
    )


def test_a_list_without_end_is_read_up_to_a_bound() -> None:
    text = "cherry ; " * 10_000 + "egg"
    read = read_list(text, OFFERED)
    assert (len(read.names), read.names[:3]) == (200, ("cherry", "cherry", "cherry"))
    assert read.spans[-1][1] == len(text)


@pytest.mark.parametrize(
    ("relevance", "offered", "length", "gain", "ndcg"),
    [
        # By hand, discounts 1, 0.630930, 0.5: (3 + 2 x 0.630930 + 3 x 0.5) over (3 + 3 x 0.630930 + 3 x 0.5) with the
        # linear gain; with 2^r - 1 the gains are 7, 3, 7 over 7, 7, 7.
        ([3, 2, 3], [3, 3, 3, 2, 1, 0], 3, "linear", (4.5 + 2 * 0.63092975) / (4.5 + 3 * 0.63092975)),
        ([3, 2, 3], [3, 3, 3, 2, 1, 0], 3, "exponential", (10.5 + 3 * 0.63092975) / (10.5 + 7 * 0.63092975)),
        ([1, 0, 1], [1, 1, 0], 3, "linear", 1.5 / 1.63092975),
        ([0, 0], [0, 0, 0], 2, "linear", 0.0),  # nothing offered is relevant
        ([2], [2, 2], 2, "linear", 1 / 1.63092975),  # a rank that is not filled
        ([2, 2, 2], [2, 2, 2], 2, "linear", 1.0),  # what comes after the last rank
    ],
)
def test_the_score_is_the_textbooks(
    relevance: list[int], offered: list[int], length: int, gain: Gain, ndcg: float
) -> None:
    assert score_order(relevance, offered, length=length, gain=gain) == pytest.approx(ndcg, abs=1e-8)


@given(offered=degrees, length=st.integers(1, 6), gain=st.sampled_from(["linear", "exponential"]))
def test_no_order_beats_the_best_one_and_every_loop_agrees(offered: list[int], length: int, gain: Gain) -> None:
    def slow(order: tuple[int, ...]) -> float:
        total = 0.0
        for rank in range(min(length, len(order))):
            total += (order[rank] if gain == "linear" else 2 ** order[rank] - 1) / math.log(rank + 2, 2)
        return total

    best = max(slow(order) for order in itertools.permutations(offered))
    for order in itertools.islice(itertools.permutations(offered), 30):
        score = score_order(order, offered, length=length, gain=gain)
        assert score == pytest.approx(slow(order) / best if best else 0.0)
        assert score <= 1.0
    assert score_order(sorted(offered, reverse=True), offered, length=length, gain=gain) == (1.0 if best else 0.0)


def test_a_thing_is_as_relevant_as_it_has_wanted_properties() -> None:
    assert all(
        properties[place] in PROPERTIES[place] for properties in THINGS.values() for place in range(len(PROPERTIES))
    )
    for wanted in itertools.product(COLOURS, SORTS, SIZES):
        for thing, properties in THINGS.items():
            assert judge_relevance(thing, wanted) == len(set(wanted) & set(properties))


def test_the_info_of_a_list() -> None:
    environment = RankedLists(num_offered=5, list_length=3).open(FOOD)
    assert environment.observe().text == "Wanted: red, food, small. Offered: piano, fire engine, egg, cherry, frog."
    outcome = environment.act("egg ; cherry ; boat ; egg")
    assert (outcome.success, outcome.terminated, outcome.accepted) == (False, True, True)
    assert outcome.reward == pytest.approx((2 + 3 * 0.63092975) / (3 + 2 * 0.63092975 + 0.5), abs=1e-8)
    assert outcome.observation.text == "There is a better order."
    assert outcome.info == {
        "graded_match": outcome.reward,
        "items": ["egg", "cherry", "", "egg"],
        "item_relevance": [2, 3, 0, 0],
        "items_exact": [False, False, False],
        "item_spans": [[0, 5], [5, 14], [14, 21], [21, 25]],
        "best_relevance": [3, 2, 1],
        "list_length": 3,
    }


@pytest.mark.parametrize(
    ("answer", "is_best", "reward"),
    [
        ("cherry ; egg ; frog", True, 2.0),
        ("cherry ; egg ; fire engine", True, 2.0),  # as relevant as the frog
        ("cherry ; egg ; frog ; piano", False, 2.0),  # one too many: no success, and nothing off the reward
        ("cherry ; egg", False, 2.0 * (3 + 2 * 0.63092975) / (3 + 2 * 0.63092975 + 0.5)),
        ("piano", False, 0.0),
    ],
)
def test_only_the_best_order_of_just_as_many_is_a_success(answer: str, is_best: bool, reward: float) -> None:
    outcome = RankedLists(num_offered=5, list_length=3, success_reward=2.0).open(FOOD).act(answer)
    assert outcome.success is is_best
    assert outcome.accepted
    assert outcome.reward == pytest.approx(reward, abs=1e-7)


def test_what_names_nothing_that_was_offered_is_refused() -> None:
    outcome = RankedLists(num_offered=5, list_length=3).open(FOOD).act("boat ; moon")
    assert (outcome.success, outcome.reward, outcome.accepted) == (False, 0.0, False)
    assert outcome.observation.text == "That is not a list."
    assert outcome.info["item_relevance"] == [0, 0]


@pytest.mark.parametrize("part", [RankedLists(), RankedLists(num_offered=20, list_length=20, gain="exponential")])
def test_the_expert_lists_the_best_in_words_of_the_vocabulary(part: RankedLists) -> None:
    for task in part.task_set("validation")[:20]:
        environment = part.open(task)
        advice = environment.expert() or ""
        assert set(split_words(advice)) <= set(part.vocabulary())
        outcome = environment.act(advice)
        assert (outcome.success, outcome.reward) == (True, 1.0)
        assert all(outcome.info["items_exact"])
        assert environment.expert() is None


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match="a list of 5 cannot be made of 4 things; lower list_length or raise num_off"):
        RankedLists(num_offered=4, list_length=5)
    with pytest.raises(ConfigError, match="list_length: expected a number greater than or equal to 2"):
        RankedLists(list_length=1)
