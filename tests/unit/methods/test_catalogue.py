"""Finding methods by name, and what their docstrings say of them."""

from __future__ import annotations

import numpy as np
import pytest

from groupwise import Algorithm, ConfigError, StepTable, methods
from groupwise.methods.method import method, summarise
from tests.oracles.variants import WITH_CRITIC, WITHOUT_INFO

NAMES = [
    "grpo",
    "dr_grpo",
    "rloo",
    "reinforce_pp",
    "reinforce_pp_baseline",
    "gigpo",
    "hgpo",
    "gagpo",
    "hgae",
    "salt",
    "mc_grpo",
    "ngrpo",
    "dgpo",
    "a_grae",
    "mars",
    "flow_grpo",
    "step_grpo",
]
"""The methods that differ in their credit."""


def test_every_method_is_listed_simplest_first() -> None:
    assert [name for name in methods.names() if name in NAMES] == NAMES
    assert methods.names() == list(methods.METHODS)


@pytest.mark.parametrize("name", methods.names())
def test_a_name_builds_what_the_function_of_that_name_builds(name: str) -> None:
    assert methods.build(name) == getattr(methods, name)()
    assert isinstance(methods.build(name), Algorithm)


def test_options_go_to_the_method() -> None:
    assert methods.build("hgpo", depth=4, scale="none") == methods.hgpo(depth=4, scale="none")


@pytest.mark.parametrize("look_up", [methods.build, methods.summary])
def test_an_unknown_method_is_named_with_the_nearest_one(look_up: object) -> None:
    assert callable(look_up)
    with pytest.raises(ConfigError) as caught:
        look_up("hgop")
    assert str(caught.value) == ("there is no method 'hgop'; did you mean 'hgpo'? `groupwise methods` lists them all")


def test_two_letters_the_wrong_way_round_are_the_nearest_slip() -> None:
    with pytest.raises(ConfigError, match="there is no method 'gpro'; did you mean 'grpo'"):
        methods.build("gpro")


def test_a_method_like_no_other_gets_the_first_of_the_list() -> None:
    with pytest.raises(ConfigError) as caught:
        methods.build("zzz")
    assert str(caught.value) == (
        "there is no method 'zzz'; Valid: a_grae, after_concise_r, after_dsdr, after_etr, after_polychromic, ... (64 "
        "in all; `groupwise methods` lists them)"
    )


@pytest.mark.parametrize("name", methods.names())
def test_every_method_has_a_sentence_a_citation_an_equation_and_its_choices(name: str) -> None:
    summary = methods.summary(name)
    assert summary.name == name
    assert summary.sentence.endswith(".")
    assert "\n" not in summary.sentence
    assert "(" not in summary.citation
    assert len(summary.citation) > 4
    assert "Choices" in summary.text
    assert " = " in summary.text


def test_a_summary_is_read_off_the_docstring() -> None:
    summary = methods.summary("hgpo")
    assert summary.sentence == "a step is compared with steps that share its state and more and more of its history."
    assert summary.citation == "2026, arXiv:2602.22817"
    assert summary.options == {
        "depth": 2,
        "alpha": 1.0,
        "gamma": 0.95,
        "scale": "std",
        "episode": False,
        "skip_average": False,
        "entropy_bonus": None,
        "invalid_penalty": 0.1,
        "refused_penalty": 0.0,
        "peers": "any",
        "reference": False,
    }


def test_a_summary_joins_the_lines_of_a_long_first_sentence() -> None:
    def method(*, size: int = 3) -> Algorithm:
        """Method (Somebody 2020): a sentence
        over two lines.

        A = 1
        """
        return methods.grpo()

    summary = summarise("method", method)
    assert summary.sentence == "a sentence over two lines."
    assert summary.citation == "Somebody 2020"
    assert summary.options == {"size": 3}


@pytest.mark.parametrize("name", methods.names())
def test_every_option_has_a_default(name: str) -> None:
    options = methods.summary(name).options
    assert methods.build(name, **options) == methods.build(name)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        (
            "hgpo",
            {"dept": 3},
            "hgpo: dept: unknown setting; did you mean 'depth'? `groupwise methods --show hgpo` lists them all",
        ),
        ("step_grpo", {"zzz": 3}, "step_grpo: zzz: unknown setting; Valid: eps"),
        ("hgpo", {"depth": -1}, "hgpo: depth: expected a number greater than or equal to 0, found -1"),
        ("hgpo", {"alpha": -0.5}, "hgpo: alpha: expected a number greater than or equal to 0, found -0.5"),
        (
            "hgpo",
            {"depth": 1.5},
            "hgpo: depth: expected an integer, found 1.5",
        ),
        ("hgpo", {"scale": "max"}, "hgpo: scale: expected 'std' or 'none', found 'max'"),
        ("grpo", {"ddof": 2}, "grpo: ddof: expected 0 or 1, found 2"),
        ("grpo", {"alone": "mean"}, "grpo: alone: expected 'zero', 'raw' or 'error', found 'mean'"),
        ("grpo", {"average": "row"}, "grpo: average: expected 'rollout' or 'step', found 'row'"),
        ("ngrpo", {"virtual": -1}, "ngrpo: virtual: expected a number greater than or equal to 0, found -1"),
        ("salt", {"base": "hgpo"}, "salt: base: expected 'grpo' or 'rloo', found 'hgpo'"),
        ("salt", {"history": -1}, "ByEdge: history: expected a number greater than or equal to 0, found -1"),
        ("gigpo", {"gamma": 1.5}, "gigpo: gamma: expected a number less than or equal to 1, found 1.5"),
        ("gigpo", {"similarity": 1.0}, "ByState: similarity: expected a number less than 1, found 1.0"),
        (
            "gigpo",
            {"invalid_penalty": -1.0},
            "Penalised: penalty: expected a number greater than or equal to 0, found -1.0",
        ),
        ("dgpo", {"temperature": 0.0}, "QuestionWeighted: temperature: expected a number greater than 0, found 0.0"),
    ],
)
def test_an_option_that_cannot_be_meant_is_refused(name: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        methods.build(name, **options)
    assert str(caught.value) == message


def test_a_method_of_your_own_is_checked_like_ours() -> None:
    @method
    def mine(*, depth: int = 1) -> Algorithm:
        """Mine (me, today): nothing new."""
        return methods.hgpo(depth=depth)

    assert mine(depth=3) == methods.hgpo(depth=3)
    with pytest.raises(ConfigError) as caught:
        mine(depth="deep")  # type: ignore[arg-type]
    assert str(caught.value) == ("mine: depth: expected an integer, found 'deep'")


@pytest.mark.parametrize("name", [name for name in methods.names() if name != "salt"])
def test_an_empty_table_has_no_credit(name: str) -> None:
    empty = StepTable.from_columns(
        **{
            column: np.zeros(0, dtype=np.int64)
            for column in ("task", "rollout", "step", "state", "reward", "critic_value")
        }
    )
    credit = methods.build(name, **WITHOUT_INFO.get(name, {})).advantage(empty)
    assert credit.values.tolist() == []
    assert credit.compared.tolist() == []


# The others compare steps or made-up rollouts, where there is a difference to see; a_grae is grpo, weighted; asymre
# gives a tie its shift. With a critic, returns are compared with its values.
OF_STEPS = {"reinforce_pp", "mars", "step_grpo", "shrunk_hgae"}
BY_EPISODE = sorted(set(methods.names()) - OF_STEPS - WITH_CRITIC - {"a_grae", "asymre", "ngrpo"})


@pytest.mark.parametrize("name", BY_EPISODE)
def test_returns_that_are_equal_up_to_rounding_get_no_credit(name: str) -> None:
    # .1 + .2 + .3 and .3 + .2 + .1 differ in the last digit.
    rewards = [0.1, 0.2, 0.3, 0.3, 0.2, 0.1]
    table = StepTable.from_columns(
        task=["t"] * 6,
        rollout=[0, 0, 0, 1, 1, 1],
        step=[0, 1, 2] * 2,
        reward=rewards,
        state=[None] * 6,
        action=["go"] * 6,
    )
    assert abs(methods.build(name, **WITHOUT_INFO.get(name, {})).advantage(table).values).max() < 1e-6
