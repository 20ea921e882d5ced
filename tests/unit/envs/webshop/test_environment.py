"""WebShop: pages by hand, the publisher's files, the published split, and what is refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest

from groupwise import ConfigError, FileError, RecordError, Task
from groupwise.envs import SPLITS, Webshop, check_environment
from groupwise.envs.kit.bm25 import Bm25
from groupwise.envs.kit.draws import Draws
from groupwise.envs.small.storefront import draw_catalogue
from groupwise.envs.webshop.catalogue import NO_LIMIT, draw_price_limit, read_goals, read_products
from groupwise.envs.webshop.environment import ShopEnvironment
from tests.unit.envs.shops import GOAL, LAMP, SCRUB, SCRUB_2, SOAP, describe_item, item, publish, shop, task

RELEASED: dict[str, Any] = {
    "max_steps": 30,
    "is_graded": False,
    "success_reward": 10.0,
    "reference": True,
    "key": "observation",
    "listed_search": "placeholder",
    "texts": "quoted",
    "search": "porter",
}
"""The settings of HGPO's release."""


def open_shop(**fields: Any) -> ShopEnvironment:
    part = Webshop(path="unused", **fields)
    return ShopEnvironment(task(), part, shop())


def test_without_the_package_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bm25s", None)
    with pytest.raises(ConfigError) as raised:
        Bm25(["a"], needed_by="webshop", extra="webshop")
    assert str(raised.value) == (
        "the environment 'webshop' needs a package that is not installed; pip install 'groupwise[webshop]'"
    )


class TestAnRollout:
    @pytest.fixture(autouse=True)
    def packages(self) -> None:
        pytest.importorskip("bm25s")
        pytest.importorskip("rapidfuzz")

    def test_a_purchase_by_hand(self) -> None:
        environment = open_shop()
        first = environment.observe()
        assert (first.text, first.state_key, first.goal) == ("Search", "search", GOAL.instruction)
        assert first.admissible == (f"search[{GOAL.instruction.lower()}]",)
        assert environment.act("search[tea tree scrub]").observation.text == (
            "Back to Search [SEP] Page 1 (Total results: 2) [SEP] B000SCRUB1 [SEP] Acme body scrub with tea tree [SEP] "
            "$12.5 [SEP] B000SCRUB2 [SEP] Bolt body scrub [SEP] $30.0"
        )
        page = environment.act("click[b000scrub1]").observation
        assert page.text == (
            "Back to Search [SEP] < Prev [SEP] scent [SEP] mint [SEP] titanium [SEP] size [SEP] family jar [SEP] "
            "8 ounce [SEP] Acme body scrub with tea tree [SEP] Price: $12.5 [SEP] Rating: N.A. [SEP] Description [SEP] "
            "Features [SEP] Reviews [SEP] Buy Now"
        )
        chosen = environment.act("click[8 ounce]").observation
        assert (chosen.text, chosen.state_key) == (page.text, "item B000SCRUB1; size: 8 ounce")
        environment.act("click[mint]")
        last = environment.act("click[buy now]")
        assert (last.reward, last.success, last.terminated) == (1.0, True, True)
        assert (last.observation.text, last.observation.admissible) == ("Thank you for shopping with us!", ())

    def test_a_poor_purchase_earns_its_score_or_nothing(self) -> None:
        walk = ("search[tea tree scrub]", "click[b000scrub1]", "click[mint]", "click[buy now]")
        graded, strict = open_shop(success_reward=10.0), open_shop(is_graded=False, success_reward=10.0)
        for environment, reward in ((graded, 8.0), (strict, 0.0)):
            *_, last = (environment.act(action) for action in walk)
            assert (last.reward, last.success, last.terminated) == (pytest.approx(reward), False, True)

    def test_pages_about_a_product_and_the_way_back(self) -> None:
        environment = open_shop()
        environment.act("search[tea tree scrub]")
        results = environment.observe()
        environment.act("click[b000scrub1]")
        environment.act("click[titanium]")
        item_page = environment.observe()
        for name, text in (("description", "For dead skin."), ("features", "Cruelty free."), ("reviews", "It works.")):
            shown = environment.act(f"click[{name}]").observation
            assert shown.text.endswith(text)
            assert shown.admissible == ("click[back to search]", "click[< prev]")
            assert shown.state_key == f"{name} B000SCRUB1; scent: titanium"
            assert environment.act("click[< prev]").observation == item_page, "what was chosen is kept"
        assert environment.act("click[< prev]").observation == results, "and forgotten once the product is left"
        assert environment.act("click[back to search]").observation.state_key == "search"

    def test_what_is_not_on_the_page_is_invalid_and_changes_nothing(self) -> None:
        environment = open_shop()
        for action in ("click[buy now]", "click[b000scrub1]", "search[]", "search", "buy now", "click[", "[x]"):
            outcome = environment.act(action)
            assert (outcome.accepted, outcome.ended, outcome.observation.text) == (False, False, "Search")
        environment.act("search[scrub]")
        assert not environment.act("search[lamp]").accepted, "there is no search bar among the results"

    def test_as_published_a_search_is_possible_everywhere(self) -> None:
        environment = open_shop(reference=True)
        environment.act("search[scrub]")
        assert environment.act("search[floor lamp]").observation.state_key == "results 1 B000000LMP"

    def test_spelling_survives_a_tokenizer_that_cuts_at_punctuation(self) -> None:
        environment = open_shop()
        assert environment.act("search [ tea tree , scrub ! ]").accepted
        environment.act("click [ B000SCRUB1 ]")
        assert environment.act("click[8  ounce ]").observation.state_key == "item B000SCRUB1; size: 8 ounce"

    def test_a_search_without_a_hit_shows_an_empty_list(self) -> None:
        seen = open_shop().act("search[zzz]").observation
        assert (seen.text, seen.admissible) == (
            "Back to Search [SEP] Page 1 (Total results: 0)",
            ("click[back to search]",),
        )

    def test_the_limit_truncates(self) -> None:
        environment = open_shop(max_steps=2)
        assert not environment.act("click[x]").ended
        last = environment.act("click[x]")
        assert (last.truncated, last.terminated, last.success) == (True, False, False)

    def test_what_a_page_says_can_be_changed(self) -> None:
        environment = open_shop(show_chosen=True, goal_in_text=True)
        assert environment.observe().text == f"Instruction: [SEP] {GOAL.instruction} [SEP] Search"
        for action in ("search[tea tree scrub]", "click[b000scrub1]", "click[mint]", "click[titanium]"):
            environment.act(action)
        assert environment.observe().text.endswith("Buy Now [SEP] Chosen: titanium")

    def test_texts_in_quotation_marks_as_released(self) -> None:
        environment = open_shop(texts="quoted")
        assert environment.observe().text == "'Search'"
        assert environment.act("search[tea tree scrub]").observation.text == (
            "'Back to Search' [SEP] 'Page 1 (Total results: 2)' [SEP] 'B000SCRUB1' [SEP] "
            "'Acme body scrub with tea tree' [SEP] '$12.5' [SEP] 'B000SCRUB2' [SEP] 'Bolt body scrub' [SEP] '$30.0'"
        )

    @pytest.mark.parametrize("texts", ["plain", "quoted"])
    def test_the_text_as_key_hides_the_chosen_options(self, texts: str) -> None:
        environment = open_shop(key="observation", texts=texts, goal_in_text=True)
        first = environment.observe()
        assert first.text.endswith(str(first.state_key))
        assert GOAL.instruction in first.text
        assert GOAL.instruction not in str(first.state_key)
        seen = [
            environment.act(action).observation
            for action in ("search[tea tree scrub]", "click[b000scrub1]", "click[8 ounce]", "click[mint]")
        ]
        assert len({one.state_key for one in seen}) == 2, "the results, and one key whatever was chosen"
        situations = open_shop(texts=texts)
        for action in ("search[tea tree scrub]", "click[b000scrub1]"):
            situations.act(action)
        keys = [situations.act(action).observation.state_key for action in ("click[8 ounce]", "click[mint]")]
        assert len(set(keys)) == 2

    def test_the_released_list_of_actions_gives_no_query_away(self) -> None:
        environment = open_shop(listed_search="placeholder")
        assert environment.observe().admissible == ("search[<your query>]",)
        assert "search[<your query>]" not in (environment.act("search[scrub]").observation.admissible or ())

    def test_as_published_the_search_page_has_a_button_that_does_nothing(self) -> None:
        environment = open_shop(reference=True, listed_search="placeholder")
        first = environment.observe()
        assert first.admissible == ("search[<your query>]", "click[search]")
        clicked = environment.act("click[search]")
        assert (clicked.accepted, clicked.observation) == (True, first)
        assert not open_shop().act("click[search]").accepted

    def test_results_are_paged_by_ten(self) -> None:
        stock = draw_catalogue(0, 60, 2)
        wanted = stock.products[0]
        goal = task(GOAL.__class__(**{**GOAL.payload(), "asin": wanted.asin, "attributes": (), "options": {}}), stock)
        environment = ShopEnvironment(goal, Webshop(path="unused"), stock)
        seen = environment.act(f"search[{wanted.query} {wanted.title}]").observation
        pages = [seen.state_key]
        while "click[next >]" in (seen.admissible or ()):
            seen = environment.act("click[next >]").observation
            pages.append(seen.state_key)
        listed = [asin for page in pages for asin in str(page).split()[2:]]
        assert [str(page).split()[1] for page in pages] == [str(number) for number in range(1, len(pages) + 1)]
        assert len(listed) == len(set(listed)) > 10
        assert all(len(str(page).split()) == 12 for page in pages[:-1])
        assert environment.act("click[< prev]").observation.state_key == pages[-2]

    def test_the_expert_comes_back_from_anywhere(self) -> None:
        for detour in (
            ("search[lamp]",),
            ("search[lamp]", "click[b000000lmp]"),
            ("search[tea tree scrub]", "click[b000scrub1]", "click[titanium]", "click[features]"),
        ):
            environment = open_shop()
            for action in detour:
                assert environment.act(action).accepted
            while not (outcome := environment.act(environment.expert() or "")).ended:
                assert outcome.accepted
            assert outcome.success is True
            assert environment.expert() is None


class TestThePublishersFiles:
    @pytest.fixture(autouse=True)
    def packages(self) -> None:
        pytest.importorskip("bm25s")
        pytest.importorskip("rapidfuzz")

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        """Forty products with every combination of their options as goals."""
        products = draw_catalogue(1, 40, 26).products
        return publish(
            tmp_path / "shop", [item(each) for each in products], {each.asin: describe_item(each) for each in products}
        )

    def part(self, folder: Path, **fields: Any) -> Webshop:
        return Webshop(path=str(folder), **{"num_test": 20, "num_validation": 30, **fields})

    def test_every_rule_is_kept(self, folder: Path) -> None:
        results = check_environment(self.part(folder), tasks=6)
        assert {result.rule: result.found for result in results if result.status != "kept"} == {}

    def test_every_rule_is_kept_with_the_released_settings(self, folder: Path) -> None:
        pytest.importorskip("snowballstemmer")
        released = self.part(folder, num_validation=0, **RELEASED)
        results = check_environment(released, tasks=6)
        assert {result.rule: result.found for result in results if result.status != "kept"} == {}

    def test_products_are_read_as_the_publisher_means_them(self, tmp_path: Path) -> None:
        items = [
            item(SCRUB, pricing="$1,012.50", small_description="One line."),
            item(SCRUB),  # a second product of this name is passed over
            item(LAMP, pricing="$50.00$70.00", full_description=None),
            item(SOAP, pricing=None, customization_options={"Color": [{"value": " Red/Blue "}], "Style": None}),
            {**item(SOAP), "asin": "nan"},
            {**item(SOAP), "asin": "LONGERTHANTEN"},
        ]
        folder = publish(tmp_path, items, {SCRUB.asin: {"attributes": ["tea tree"]}})
        (folder / "reviews.json").write_text(
            json.dumps([{"asin": SOAP.asin, "average_rating": 4.5, "reviews": [{"review": "Nice."}]}]), encoding="utf-8"
        )
        scrub, lamp, soap = read_products(folder, "1000")
        assert (scrub.price, scrub.price_tag, scrub.features) == (1012.5, "$1012.5", ("One line.",))
        assert scrub.options == {"scent": ("mint", "titanium"), "size": ("family jar", "8 ounce")}
        assert (scrub.attributes, lamp.attributes) == (("tea tree",), ())
        assert lamp.price_tag == "$50.0 to $70.0"
        assert 50.0 <= lamp.price <= 70.0
        assert (soap.price, soap.options) == (100.0, {"color": ("red | blue",)})
        assert (soap.rating, soap.reviews) == ("4.5", ("Nice.",))

    def test_goals_stand_in_the_published_order_and_the_split_follows_it(self, folder: Path) -> None:
        products = read_products(folder, "1000")
        goals = read_goals(folder, "1000", products, human=False)
        unshuffled = [goal.instruction.partition(", and price")[0] for goal in unshuffle(goals)]
        assert unshuffled[0].startswith(describe_item(products[0])["instruction"]), (
            "products in order, options in order"
        )
        task_sets = {split: self.part(folder).task_set(split) for split in SPLITS}
        drawn = [each.payload["instruction"] for split in ("test", "validation", "train") for each in task_sets[split]]
        assert drawn == [goal.instruction for goal in goals]
        assert [len(task_sets[split]) for split in ("test", "validation")] == [20, 30]

    def test_as_released_all_other_goals_are_for_training(self, folder: Path) -> None:
        goals = read_goals(folder, "1000", read_products(folder, "1000"), human=False)
        part = self.part(folder, num_validation=0)
        drawn = {split: [task.payload["instruction"] for task in part.task_set(split)] for split in SPLITS}
        assert drawn["test"] == [goal.instruction for goal in goals[:20]]
        assert drawn["validation"] == []
        assert drawn["train"] == [goal.instruction for goal in goals[20:]]
        with pytest.raises(ConfigError, match="num_validation: expected a number greater than or equal to 0"):
            self.part(folder, num_validation=-1)

    def test_the_published_numbers_are_the_default(self) -> None:
        part = Webshop(path="unused")
        assert (part.num_test, part.num_validation, part.max_steps) == (500, 1000, 15)

    def test_a_goal_that_comes_again_stays_in_the_test_task_set_alone(self, tmp_path: Path) -> None:
        """Leakage: the same wish, written several times, must not be trained on and tested."""
        twice = {"Color": [{"value": value} for value in ("red", "red", "blue", "red", "blue")] * 6}
        folder = publish(tmp_path, [item(SOAP, customization_options=twice)], {SOAP.asin: describe_item(SOAP)})
        part = self.part(folder, num_test=5, num_validation=1)
        with pytest.raises(ConfigError, match="leave none"):
            self.part(folder, num_test=25, num_validation=10).task_set("test")
        colours = {split: [each.payload["options"]["color"] for each in part.task_set(split)] for split in SPLITS}
        assert sorted(colours["test"]) == ["blue", "red"]
        assert colours["validation"] == colours["train"] == []

    def test_goals_that_people_wrote(self, tmp_path: Path) -> None:
        human = {
            SCRUB.asin: [
                {
                    "instruction": "i want a tea tree scrub.",
                    "instruction_attributes": ["tea tree"],
                    "instruction_options": ["Mint", "huge"],
                },
                {"instruction": "anything", "instruction_attributes": [], "instruction_options": []},
            ]
        }
        folder = publish(tmp_path, [item(SCRUB)], {}, human=human)
        (goal,) = read_goals(folder, "1000", read_products(folder, "1000"), human=True)
        assert goal.instruction == f"i want a tea tree scrub, and price lower than {goal.price_upper:.2f} dollars"
        assert (goal.options, goal.is_paired) == ({"scent": "mint", "option 1": "huge"}, False)

    def test_an_expert_that_cannot_reach_an_option_still_buys(self, tmp_path: Path) -> None:
        goal = GOAL.__class__(**{**GOAL.payload(), "options": {"option 0": "huge"}})
        environment = ShopEnvironment(task(goal), Webshop(path=str(tmp_path)), shop())
        while not (outcome := environment.act(environment.expert() or "")).ended:
            pass
        assert (outcome.success, outcome.reward) == (False, pytest.approx(3 / 4))

    def test_a_task_of_another_catalogue_is_refused(self, folder: Path, tmp_path: Path) -> None:
        part = self.part(folder)
        first = part.task_set("test")[0]
        items = json.loads((folder / "items_shuffle_1000.json").read_text())
        items[0]["name"] = "Another title"
        other = publish(tmp_path / "other", items, json.loads((folder / "items_ins_v2_1000.json").read_text()))
        with pytest.raises(RecordError) as raised:
            self.part(other).open(first)
        assert str(raised.value).startswith(f"task {first.id} was made for the catalogue {first.payload['catalogue']}")


def unshuffle(goals: list[Any]) -> list[Any]:
    """Undo the published shuffle, by an order of its own making."""
    places = list(range(len(goals)))
    Random(233).shuffle(places)
    return [goal for _, goal in sorted(zip(places, goals, strict=True), key=lambda pair: pair[0])]


def test_price_limits_are_one_of_the_next_but_the_first() -> None:
    drawn = {draw_price_limit(12.5, Draws(number)) for number in range(200)}
    assert drawn == {30.0, 40.0, 50.0}
    assert {draw_price_limit(20.0, Draws(number)) for number in range(200)} == {40.0, 50.0, 60.0}, "above, not at"
    assert draw_price_limit(985.0, Draws(0)) == NO_LIMIT


class TestBadFiles:
    def refusal(self, folder: Path, **fields: Any) -> str:
        with pytest.raises((ConfigError, FileError)) as raised:
            Webshop(path=str(folder), **fields).task_set("train")
        return str(raised.value)

    def test_no_folder(self, tmp_path: Path) -> None:
        assert self.refusal(tmp_path / "x") == (
            f"webshop: there is no folder '{tmp_path / 'x'}'; set `path` to the folder of WebShop's data, which its "
            "setup.sh downloads"
        )

    def test_a_missing_file(self, tmp_path: Path) -> None:
        assert self.refusal(tmp_path) == (
            f"webshop: '{tmp_path}' has no items_shuffle_1000.json; download it with WebShop's setup.sh"
        )
        publish(tmp_path, [item(SCRUB)], {})
        assert "has no items_shuffle.json" in self.refusal(tmp_path, size="all")
        assert "has no items_human_ins.json" in self.refusal(tmp_path, goals="human")

    def test_a_file_that_is_not_json_or_of_another_shape(self, tmp_path: Path) -> None:
        publish(tmp_path / "a", [item(SCRUB)], {})
        (tmp_path / "a" / "items_shuffle_1000.json").write_text("[{", encoding="utf-8")
        assert "items_shuffle_1000.json: not JSON" in self.refusal(tmp_path / "a")
        publish(tmp_path / "b", [item(SCRUB)], {})
        (tmp_path / "b" / "items_shuffle_1000.json").write_text("{}", encoding="utf-8")
        assert self.refusal(tmp_path / "b").endswith("found a dict, not a list; download the file again")

    def test_a_product_that_lacks_something(self, tmp_path: Path) -> None:
        publish(tmp_path / "a", [item(SCRUB), {"name": "x"}], {})
        assert self.refusal(tmp_path / "a").endswith("product 1 has no 'asin'; download the file again")
        wrong = item(SCRUB_2)
        del wrong["customization_options"]
        publish(tmp_path / "b", [wrong], {})
        assert "product 0 (B000SCRUB2) does not have the publisher's format (KeyError" in self.refusal(tmp_path / "b")

    def test_too_few_goals(self, tmp_path: Path) -> None:
        publish(tmp_path, [item(SCRUB)], {SCRUB.asin: describe_item(SCRUB)})
        assert self.refusal(tmp_path) == (
            f"webshop: '{tmp_path}' has 4 synthetic goals, but test (500) and validation (1000) leave none for "
            "training; decrease num_test and num_validation"
        )


class TestInfo:
    @pytest.fixture(autouse=True)
    def packages(self) -> None:
        pytest.importorskip("bm25s")
        pytest.importorskip("rapidfuzz")

    def test_by_hand(self) -> None:
        environment = open_shop()
        gold = {"gold_answer": "B000SCRUB1; scent: mint; size: 8 ounce"}
        searched = environment.act("search[Tea tree scrub]")
        assert searched.info == gold | {
            "calls": [{"name": "search", "arguments": {"query": "tea tree scrub"}}],
            "num_calls": 1,
            "checks": {"read": True, "fits": True},
        }
        refused = environment.act("click[nowhere]")
        assert refused.info == gold | {
            "calls": [{"name": "click", "arguments": {"button": "nowhere"}}],
            "num_calls": 1,
            "checks": {"read": True, "fits": False},
        }
        talk = environment.act("buy it")
        assert talk.info == gold | {"calls": [], "num_calls": 0, "checks": {"read": False}}
        for action in ("click[b000scrub1]", "click[8 ounce]"):
            environment.act(action)
        unfinished = environment.fork().act("click[buy now]")
        assert unfinished.info == gold | {
            "answer": "B000SCRUB1; size: 8 ounce",
            "exact": False,
            "graded_match": unfinished.reward,
            "match_parts": {"type": 1.0, "price": 1.0, "attributes": 1.0, "options": 0.5},
            "calls": [],
            "num_calls": 0,
            "checks": {"read": True, "fits": True, "right": False},
        }
        environment.act("click[mint]")
        bought = environment.act("click[buy now]").info
        assert (bought["answer"], bought["exact"], bought["graded_match"]) == (gold["gold_answer"], True, 1.0)
        assert bought["checks"]["right"] is True

    def test_what_was_not_asked_for_has_no_part(self) -> None:
        payload = {"attributes": [], "options": {}}
        wish = Task.create(env="webshop", payload=dict(task().payload) | payload)
        environment = ShopEnvironment(wish, Webshop(path="unused"), shop())
        for action in ("search[tea tree scrub]", "click[b000scrub1]"):
            environment.act(action)
        info = environment.act("click[buy now]").info
        assert info["match_parts"] == {"type": 1.0, "price": 1.0}
        assert info["gold_answer"] == "B000SCRUB1"

    def test_the_grade_does_not_depend_on_what_is_paid(self) -> None:
        environment = open_shop(is_graded=False)
        for action in ("search[tea tree scrub]", "click[b000scrub1]"):
            environment.act(action)
        bought = environment.act("click[buy now]")
        assert bought.reward == 0.0
        assert bought.info["graded_match"] == pytest.approx(3 / 5)
