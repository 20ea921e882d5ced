"""The score of a purchase: its parts by hand, the colour fault and its repair, and what always holds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("rapidfuzz")

from groupwise import ConfigError
from groupwise.envs.webshop.catalogue import Goal, Product
from groupwise.envs.webshop.reward import COLOURS, PurchaseScore, are_alike, colour_of, score_purchase, score_type
from tests.unit.envs.shops import GOAL, LAMP, SCRUB, SCRUB_2, SOAP

RIGHT = {"scent": "mint", "size": "8 ounce"}


def score(bought: Product, chosen: dict[str, str], goal: Goal = GOAL, *, reference: bool = False) -> PurchaseScore:
    return score_purchase(bought, chosen, goal, SCRUB, reference=reference, tagger="")


@pytest.mark.parametrize(
    ("bought", "chosen", "parts", "total"),
    [
        # two attributes, two options, the price: five parts
        (SCRUB, RIGHT, (1.0, 2, 2, True), 1.0),
        (SCRUB, {}, (1.0, 2, 0, True), 3 / 5),
        (SCRUB, {"scent": "mint", "size": "family jar"}, (1.0, 2, 1, True), 4 / 5),
        (SCRUB_2, {"scent": "mint"}, (1.0, 0, 1, False), 1 / 5),
        # a soap shares no noun with a scrub, whatever else fits
        (SOAP, {}, (0.0, 1, 0, True), 0.0),
        (LAMP, {}, (0.0, 0, 0, False), 0.0),
    ],
)
def test_parts_by_hand(bought: Product, chosen: dict[str, str], parts: tuple[Any, ...], total: float) -> None:
    purchase = score(bought, chosen)
    assert (purchase.type, purchase.attributes, purchase.options, purchase.price) == parts
    assert purchase.total == pytest.approx(total)
    assert purchase.asked == 5


def test_the_price_may_be_met_exactly() -> None:
    assert score(SCRUB, RIGHT, replace(GOAL, price_upper=12.5)).price
    assert score(SCRUB, RIGHT, replace(GOAL, price_upper=12.49)).total == pytest.approx(4 / 5)


def test_an_attribute_counts_where_the_product_lists_or_tells_it() -> None:
    goal = replace(GOAL, attributes=("oil free", "dead skin", "cruelty free", "body scrub", "glow in the dark"))
    assert score(SCRUB, RIGHT, goal).attributes == 4


@pytest.mark.parametrize(
    ("title", "query", "category", "expected"),
    [
        ("body scrub acme", "other", "Other", 1.0),  # three of four nouns
        ("acme lamp", "other", "Other", 1.0),  # one of four: more than a fifth
        ("lamp", "scrubs", "Beauty \u203a Skin Care", 0.0),  # no noun: neither query nor category helps
        ("", "scrubs", "", 0.0),
    ],
)
def test_the_type(title: str, query: str, category: str, expected: float) -> None:
    bought = replace(LAMP, title=title, query=query, product_category=category)
    wanted = replace(SCRUB, title="Acme body scrub tea")
    assert score_type(bought, wanted) == expected


def test_few_shared_nouns_count_half_unless_query_or_categories_agree() -> None:
    wanted = replace(SCRUB, title="acme body scrub tea tree mint")  # six nouns: one of them is less than a fifth
    bought = replace(LAMP, title="acme lamp", query="lamps", product_category="Home \u203a Lighting")
    assert score_type(bought, wanted) == 0.5
    assert score_type(replace(bought, query=wanted.query), wanted) == 1.0
    assert score_type(replace(bought, product_category=wanted.product_category), wanted) == 1.0
    assert score_type(replace(bought, product_category="Beauty \u203a Lamps"), wanted) == 0.5, "one level is not two"
    many = replace(wanted, title=" ".join(f"noun{letter}" for letter in "abcdefghijkl") + " acme")
    assert score_type(bought, many) == 0.1


def test_a_title_without_nouns_is_of_unknown_type() -> None:
    assert score_type(replace(LAMP, query="scrubs"), replace(SCRUB, title="2 x 4")) == 1.0
    assert score_type(LAMP, replace(SCRUB, title="2 x 4")) == 0.5


def test_the_published_score_misses_a_colour_that_a_word_contains_by_chance() -> None:
    goal = replace(GOAL, options={"scent": "titanium", "size": "8 ounce"})
    chosen = {"scent": "titanium", "size": "8 ounce"}
    assert colour_of("titanium") == "tan"
    assert score(SCRUB, chosen, goal, reference=True).total == pytest.approx(4 / 5)
    assert score(SCRUB, chosen, goal).total == 1.0
    written = replace(goal, is_paired=False)
    assert score(SCRUB, chosen, written, reference=True).total == 1.0, "goals that people wrote do not have the fault"


def test_with_and_without_the_fault_a_whole_colour_is_found() -> None:
    for value in ("red", "navy blue", "dark navy blue"):
        goal = replace(GOAL, options={"color": value})
        for reference in (True, False):
            assert score(SCRUB, {"color": value}, goal, reference=reference).options == 1
            assert score(SCRUB, {"color": "yellow"}, goal, reference=reference).options == 0


def test_the_first_colour_of_the_list_stands_for_an_option() -> None:
    assert colour_of("white and navy blue") == "blue"
    assert list(COLOURS) == sorted(COLOURS)
    assert len(COLOURS) == len(set(COLOURS)) == 102


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("machine wash", "wash machine", True),
        ("8 ounce", "8 Ounce (pack of 2)", True),
        ("4 ounce", "8 ounce", True),  # 86 of 100, as published: one letter of seven differs
        ("mint", "vanilla", False),
        ("easy clean", "easy carry", False),
        ("", "", False),
    ],
)
def test_phrases_that_mean_the_same(one: str, other: str, expected: bool) -> None:
    assert are_alike(one, other) == are_alike(other, one) == expected


values = st.text(st.characters(codec="ascii", categories=("Ll", "Nd", "Zs")), min_size=1, max_size=12)


@given(st.dictionaries(values, values, max_size=4), st.booleans())
def test_choosing_what_is_asked_for_is_right_whatever_it_is(options: dict[str, str], is_paired: bool) -> None:
    goal = replace(GOAL, options=options, is_paired=is_paired)
    assert score(SCRUB, options, goal).total == 1.0


@given(st.sampled_from([SCRUB, SCRUB_2, LAMP, SOAP]), st.dictionaries(values, values, max_size=3), st.booleans())
def test_a_score_lies_between_0_and_1(bought: Product, chosen: dict[str, str], reference: bool) -> None:
    assert 0.0 <= score(bought, chosen, reference=reference).total <= 1.0


def test_a_tagger_that_is_not_here_is_named() -> None:
    with pytest.raises(ConfigError, match="tagger 'no_such_model'"):
        score_type(SCRUB, LAMP, tagger="no_such_model")
