"""The storefront: a shop from a seed that can be searched, solved and told from other shops."""

from __future__ import annotations

from itertools import combinations

import pytest

pytest.importorskip("bm25s")
pytest.importorskip("rapidfuzz")

from groupwise import ConfigError, RecordError
from groupwise.envs import SPLITS, Storefront, check_environment, task_set_hash
from groupwise.envs.small.storefront import NUM_KINDS, draw_catalogue
from groupwise.envs.small.storefront import _read_stock as stock
from groupwise.envs.webshop.catalogue import Goal
from groupwise.envs.webshop.reward import are_alike, colour_of
from groupwise.rollout.worker_pool import Workers

GOLDEN = {
    "train": "151116ad4bac4651cba5d20d50d9b8127bf60e78aa9099a35a93c3df33e15527",
    "validation": "9aace4fed134c505f2f67812b6d9e9a564fe234eb13fc26611c73e47f777209b",
    "test": "b97c6947cb95b865e4edbe6f504cd3c56ac0b45daa7430af3a0faf5d648bfdf6",
}
"""TaskSets of the default shop; results are measured on them, so they change only with the data file."""


@pytest.mark.parametrize(
    "part",
    [
        Storefront(),
        Storefront(shop=5, num_products=30, num_kinds=3, goal_in_text=True, show_chosen=False),
        Storefront(num_products=60, key="observation", listed_search="placeholder", texts="quoted", reference=True),
    ],
    ids=["default", "small", "as released"],
)
def test_every_rule_is_kept(part: Storefront) -> None:
    assert {result.rule: result.found for result in check_environment(part, tasks=6) if result.status != "kept"} == {}


@pytest.mark.parametrize("split", SPLITS)
def test_task_sets_are_the_ones_results_were_measured_on(split: str) -> None:
    assert task_set_hash(Storefront().task_set(split)) == GOLDEN[split]


def test_the_expert_buys_what_is_asked_for_in_nine_steps_at_most() -> None:
    part = Storefront()
    for task in part.task_set("test"):
        environment, steps = part.open(task), 1
        while not (outcome := environment.act(environment.expert() or "")).ended:
            assert outcome.accepted
            steps += 1
        assert (outcome.success, outcome.reward) == (True, 1.0)
        assert steps <= 9


def test_a_shop_follows_from_its_number() -> None:
    assert draw_catalogue(0, 50, 26).digest == draw_catalogue.__wrapped__(0, 50, 26).digest
    assert len({draw_catalogue(shop, 50, 26).digest for shop in range(4)}) == 4
    products = draw_catalogue(0, 200, 26).products
    assert len(products) == len({product.asin for product in products}) == 200
    assert len({product.query for product in products}) == NUM_KINDS == len(stock()["kinds"])


def test_everything_that_is_asked_for_stands_on_some_page() -> None:
    for product in draw_catalogue(0, 100, 26).products:
        shown = " ".join((product.title, product.description, *product.features))
        assert all(attribute in shown for attribute in product.attributes)


def test_two_values_of_a_kind_are_never_taken_for_each_other() -> None:
    """Or a wrong choice would count as right: the published matcher takes 4 ounce for 8 ounce."""
    for kind in stock()["kinds"]:
        values = [value for values in kind["options"].values() for value in values]
        for one, other in combinations(values, 2):
            assert not are_alike(colour_of(one), colour_of(other)), (kind["noun"], one, other)


def test_an_instruction_says_all_that_counts() -> None:
    for task in Storefront().task_set("validation"):
        goal = Goal.of(task)
        assert all(attribute in goal.instruction for attribute in goal.attributes)
        assert all(f"{name}: {value}" in goal.instruction for name, value in goal.options.items())
        assert goal.instruction.endswith(f"price lower than {goal.price_upper:.2f} dollars")
        assert task.tags == (draw_catalogue(0, 200, 26).by_asin[goal.asin].category,)


@pytest.mark.parametrize("part", [Storefront(), Storefront(num_products=8, num_kinds=4)], ids=["default", "small"])
def test_no_wish_is_in_two_task_sets_in_other_words_or_with_another_limit(part: Storefront) -> None:
    wishes = [
        (goal.asin, goal.attributes, tuple(goal.options.items()))
        for split in SPLITS
        for goal in map(Goal.of, part.task_set(split))
    ]
    assert len(wishes) == len(set(wishes)) > 300


def test_a_worker_shows_what_this_process_shows() -> None:
    part = Storefront(num_products=30)
    tasks = dict(enumerate(part.task_set("test")[:4]))
    here = {number: part.open(task) for number, task in tasks.items()}
    with Workers(part, num=1, timeout=60.0) as host:
        assert host.open(tasks) == {number: environment.observe() for number, environment in here.items()}
        while here:
            actions = {number: environment.expert() or "" for number, environment in here.items()}
            outcomes = {number: here[number].act(action) for number, action in actions.items()}
            assert host.act(actions) == outcomes
            here = {number: environment for number, environment in here.items() if not outcomes[number].ended}


def test_a_task_of_another_shop_is_refused() -> None:
    task = Storefront().task_set("test")[0]
    with pytest.raises(RecordError, match="was made for the catalogue"):
        Storefront(shop=1).open(task)


def test_more_kinds_than_there_are_cannot_be_asked_for() -> None:
    with pytest.raises(ConfigError, match="num_kinds"):
        Storefront(num_kinds=NUM_KINDS + 1)
