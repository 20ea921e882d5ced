"""Tokens with credit of their own as reports read them: texts, shades, runs of equal credit, pairs and channels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.report.derived_credit import NUM_SHADES, CreditedTokens, choose_shade, find_reach, shade_tokens
from groupwise.report.groups import PlayedGroup, read_groups
from groupwise.report.prompts import TokenTexts
from groupwise.system.text import cut_text
from groupwise.training.run_reader import RunFolder
from tests.unit.report.token_runs import (
    ANSWERS,
    CHANNELLED,
    FIRST_CREDIT,
    FIRST_TRAINS,
    INSIDE,
    PAIRED,
    SECOND_CREDIT,
    answer,
    write_token_run,
)


def read_group(folder: Path) -> PlayedGroup:
    with RunFolder(folder) as run:
        (group,) = read_groups(run, 1)
    return group


def tokens_of(ids: list[int], values: list[float], trains: list[bool], *, forced: int = 0) -> CreditedTokens:
    return CreditedTokens(ids=ids, num_forced=forced, values=np.array(values), trains=np.array(trains, dtype=np.bool_))


def test_a_group_has_the_credit_of_its_tokens(tmp_path: Path) -> None:
    group = read_group(write_token_run(tmp_path / "run"))
    first, second = (rollout.steps[0].tokens for rollout in group.rollouts)
    assert first is not None
    assert second is not None
    assert (first.values.tolist(), first.trains.tolist(), first.num_forced) == (FIRST_CREDIT, FIRST_TRAINS, 1)
    assert (second.values.tolist(), second.trains.all(), second.num_forced) == (SECOND_CREDIT, True, 0)
    assert first.describe() == "4 of 5 sampled tokens train; advantages +0.250 to +0.750, sum +2.000"
    assert group.rollouts[0].steps[0].credit == 1.0, "the step's own credit stays beside it"
    assert (group.pairs, group.rollouts[0].steps[0].channels) == (None, {})


def test_without_a_token_part_nothing_is_said_of_tokens(tmp_path: Path) -> None:
    group = read_group(write_token_run(tmp_path / "run", CHANNELLED))
    assert [rollout.steps[0].tokens for rollout in group.rollouts] == [None, None]
    assert [rollout.steps[0].channels for rollout in group.rollouts] == [{"tempo": 0.5}, {"tempo": -0.5}]


def test_the_pairs_of_a_group_say_who_why_and_by_how_much(tmp_path: Path) -> None:
    group = read_group(write_token_run(tmp_path / "run", PAIRED))
    assert group.pairs is not None
    (pair,) = group.pairs
    assert (pair.winner, pair.loser, pair.winner_step, pair.gap, pair.weight) == (0, 1, None, 1.0, 1.0)
    assert pair.describe() == (
        "rollout 0 over rollout 1: best and worst rollout at the task: return 1 against 0; margin 1, weight 1"
    )


def test_a_group_whose_loss_reads_pairs_teaches_by_its_pairs(tmp_path: Path) -> None:
    even = [answer(rollout, "three is nine", 1.0, [3], []) for rollout in (0, 1)]
    assert read_group(write_token_run(tmp_path / "even", PAIRED, even)).teaches is False
    assert read_group(write_token_run(tmp_path / "run", PAIRED)).teaches is True


def test_a_group_teaches_where_a_token_that_trains_has_credit_though_no_step_has(tmp_path: Path) -> None:
    even = [answer(rollout, "three is nine", 1.0, [1, 3], [0.5]) for rollout in (0, 1)]
    group = read_group(write_token_run(tmp_path / "run", INSIDE, even))
    assert [step.credit for step in group.steps] == [0.0, 0.0]
    assert group.teaches


def test_what_a_journal_lacks_costs_the_tokens_and_is_said(tmp_path: Path) -> None:
    bare = [answer(rollout.rollout, "nine", rollout.steps[0].reward, [9], []) for rollout in ANSWERS]
    group = read_group(write_token_run(tmp_path / "run", INSIDE, bare))
    assert group.rollouts[0].steps[0].tokens is None
    assert group.rollouts[0].steps[0].compared is True
    assert group.details_missing.startswith("The advantages of tokens and channels cannot be derived again (")
    assert "segment_ends is [9]" in group.details_missing


# Texts


def test_tokens_are_cut_by_the_runs_own_tokenizer(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    texts = TokenTexts(write_token_run(tmp_path / "run"))
    assert texts.cut([1, 2, 3]) == ["so", " three", " plus"]
    assert texts.cut([]) == []
    assert TokenTexts(tmp_path).cut([1]) is None


def test_a_secret_that_lies_across_tokens_is_not_spelled_by_them(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    folder = write_token_run(tmp_path / "run", words=["[UNK]", "bearer", "abcd1234", "seven"])
    texts = TokenTexts(folder)
    assert texts.cut([3, 1]) == ["seven", " bearer"]
    assert texts.cut([3, 1, 2]) is None, "a header with a token"


def decode_bytes(ids: tuple[int, ...]) -> str:
    """A tokenizer whose tokens are bytes."""
    return bytes(ids).decode("utf-8", errors="replace")


@given(st.text(alphabet=st.characters(exclude_characters="\N{REPLACEMENT CHARACTER}", codec="utf-8"), max_size=40))
def test_the_texts_of_tokens_add_up_to_the_response(text: str) -> None:
    ids = list(text.encode())
    pieces = cut_text(ids, decode_bytes)
    assert len(pieces) == len(ids)
    assert "".join(pieces) == text
    assert [piece for piece in pieces if piece] == list(text), "the last byte of a character has it"


def test_what_never_becomes_a_character_is_shown_as_it_is_and_costs_no_square() -> None:
    asked: list[int] = []

    def decode(ids: tuple[int, ...]) -> str:
        asked.append(len(ids))
        return decode_bytes(ids)

    assert "".join(cut_text([0xFF] * 400, decode)).strip("\N{REPLACEMENT CHARACTER}") == ""
    assert max(asked) <= 16


# Shades


@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(min_value=0, allow_infinity=False))
def test_a_shade_has_the_sign_of_the_credit_and_is_none_at_zero_alone(credit: float, reach: float) -> None:
    shade = choose_shade(credit, reach)
    assert -NUM_SHADES <= shade <= NUM_SHADES
    assert (shade > 0, shade < 0) == (credit > 0, credit < 0)
    if abs(credit) >= reach > 0:
        assert abs(shade) == NUM_SHADES


def test_neighbours_of_one_credit_are_one_piece() -> None:
    tokens = tokens_of([9, 5, 6, 7, 8], [0.5, 0.5, float("nan"), -0.0], [True, True, False, True], forced=1)
    pieces = shade_tokens(tokens, ["a", "b", "c", "d", "e"])
    assert [(piece.text, piece.credit, piece.is_forced) for piece in pieces] == [
        ("a", None, True),
        ("bc", 0.5, False),
        ("d", None, False),
        ("e", 0.0, False),
    ]
    assert [piece.meaning for piece in pieces] == [
        "token 0: forced on the policy, does not train",
        "tokens 1 to 2: +0.5000",
        "token 3: does not train",
        "token 4: 0.0000",
    ]
    assert [piece.text for piece in shade_tokens(tokens, None, first=1, end=3)] == ["5 6 "], (
        "ids, where no text is known"
    )


def test_the_reach_is_the_largest_credit_of_what_trains() -> None:
    trains = tokens_of([1, 2], [0.5, -9.0], [True, False])
    assert find_reach([trains, tokens_of([], [], [])]) == 0.5
    assert find_reach([]) == 0.0
    assert tokens_of([1], [float("nan")], [False]).describe() == "none of 1 sampled tokens trains"
