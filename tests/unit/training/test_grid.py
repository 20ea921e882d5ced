"""Variants from the command line: combinations, names, and what is refused."""

from __future__ import annotations

import pytest

from groupwise import ConfigError
from groupwise.training.sweep import list_choices, name_variants


def test_every_combination_is_an_variant() -> None:
    choices = list_choices(["algorithm.method=grpo,hgpo", "training.tasks=4,8", "threads=1"])
    assert [tuple(choice.values()) for choice in choices] == [
        ("grpo", "4", "1"),
        ("grpo", "8", "1"),
        ("hgpo", "4", "1"),
        ("hgpo", "8", "1"),
    ]
    assert name_variants(choices, otherwise="x") == ["grpo,tasks=4", "grpo,tasks=8", "hgpo,tasks=4", "hgpo,tasks=8"]


def test_without_settings_there_is_one_variant_called_after_the_file() -> None:
    assert list_choices([]) == [{}]
    assert name_variants([{}], otherwise="my run") == ["my-run"]
    assert name_variants(list_choices(["a.b=1"]), otherwise="run") == ["run"]


def test_commas_within_quotes_tables_and_lists_belong_to_a_value() -> None:
    setting = """rollout.plan={ kind = "top_up", rounds = 4 },{ kind = "flat" },"a,b",[1, 2],'x,]'"""
    values = [choice["rollout.plan"] for choice in list_choices([setting])]
    assert values == ['{ kind = "top_up", rounds = 4 }', '{ kind = "flat" }', '"a,b"', "[1, 2]", "'x,]'"]
    names = name_variants(list_choices([setting]), otherwise="x")
    assert names == ["plan=top_up-rounds-4", "plan=flat", "plan=a,b", "plan=-1,-2", "plan=x"]


def test_keys_that_end_alike_are_written_in_full() -> None:
    [name, *_] = name_variants(list_choices(["rollout.temperature=1,2", "evaluation.temperature=0,1"]), otherwise="x")
    assert name == "rollout.temperature=1,evaluation.temperature=0"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["a.b=1,,2"], "--set a.b=1,,2 lacks a value; write --set a.b=1,2"),
        (["a.b="], "--set a.b= lacks a value; write --set a.b=1,2"),
        (["a.b=1,1"], "--set a.b=1,1 has a value twice; name each once"),
        (["a.b=1", "a.b=2"], "--set a.b is given twice; give all of its values at once: --set a.b=1,2"),
        (["a.b"], "'a.b' has no value; write --set a.b=VALUE"),
        (
            ["seed=1,2"],
            "--set seed: a sweep counts its seeds from the run file's; set their number with --seeds",
        ),
    ],
)
def test_settings_that_make_no_grid_are_refused(settings: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        list_choices(settings)
    assert str(raised.value) == message


def test_variants_that_would_share_a_folder_are_refused() -> None:
    with pytest.raises(ConfigError) as raised:
        name_variants(list_choices(["env.kind=a b,a/b"]), otherwise="x")
    assert str(raised.value) == (
        "two variants of the sweep would both be called 'kind=a-b'; give settings that make the names differ"
    )
