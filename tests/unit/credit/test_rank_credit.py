"""Credit by rank: what was worked by hand, relations to other methods, and info that do not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from groupwise import ConfigError, RecordError, StepTable, methods
from groupwise.credit import WhitenedTokens
from groupwise.data.credit import TokenCredit
from groupwise.data.token_table import TokenTable
from groupwise.methods.rank_grpo import RankCredit
from groupwise.training.loss_context import check_loss_context

TWO = {"list_length": 2, "item_relevance": [1, 0], "item_tokens": [[0, 2], [2, 3]], "end_token": 3}
GRPO = methods.grpo().advantage


def credit_of(part: Any, *lists: dict[str, Any], tokens: int = 4, task: list[str] | None = None) -> TokenCredit:
    """The credit of lists of one group, each said in so many tokens and earning 1 and 0 in turn."""
    names = dict.fromkeys(name for info in lists for name in info)
    table = StepTable.from_columns(
        task=task or ["t"] * len(lists),
        rollout=list(range(len(lists))),
        step=[0] * len(lists),
        reward=[float(number % 2 == 0) for number in range(len(lists))],
        **{name: [info.get(name) for info in lists] for name in names},
    )
    rows = [{"response_ids": list(range(tokens))} for _ in lists]
    made: TokenCredit = part(table, GRPO(table).by_step(), TokenTable.from_rows(table, rows))
    return made


def test_what_is_around_a_list_has_the_credit_of_its_step_and_what_is_too_much_the_same_for_all() -> None:
    long = {**TWO, "item_relevance": [0, 0, 5], "item_tokens": [[1, 2], [2, 3], [3, 3]], "end_token": 3}
    made = credit_of(RankCredit(), TWO, long)
    step = 0.5 / (0.5**0.5 + 1e-6)
    rank = 0.5 / (0.5**0.5 + 1e-4)
    assert made.values.tolist() == pytest.approx([rank, rank, 0.0, 0.1, -step, -rank, 0.0, -0.1])
    assert made.span is not None
    assert made.span.tolist() == [0, 0, 1, 3, 4, 0, 1, 2]
    assert made.trains.all()


def test_a_rank_that_is_not_filled_earned_nothing_and_is_compared() -> None:
    short = {**TWO, "item_relevance": [1], "item_tokens": [[0, 3]]}
    full = {**TWO, "item_relevance": [1, 2]}
    made = credit_of(RankCredit(), short, full)
    assert made.values.tolist() == pytest.approx([0, 0, 0, -0.1, 0, 0, 1 / (2**0.5 + 1e-4), 0.1])


def test_equal_ranks_give_exactly_0_and_so_does_a_task_with_one_rollout() -> None:
    third = {**TWO, "item_relevance": [0.1, 0.7]}
    assert credit_of(RankCredit(reward="log_decay"), third, third, third).values[:3].tolist() == [0.0] * 3
    assert credit_of(RankCredit(), TWO, third, task=["s", "t"]).values[[0, 1, 2, 4, 5, 6]].tolist() == [0.0] * 6


def test_at_the_first_rank_what_follows_is_the_discounted_gain_of_the_list() -> None:
    relevance = [[3, 0, 1], [0, 2, 2], [1, 1, 0]]
    lists = [{**TWO, "list_length": 3, "item_relevance": r, "item_tokens": [[0, 1], [1, 2], [2, 3]]} for r in relevance]
    gains = [sum(degree / np.log2(rank + 2) for rank, degree in enumerate(degrees)) for degrees in relevance]
    table = StepTable.from_columns(task=["t"] * 3, rollout=[0, 1, 2], step=[0] * 3, reward=gains)
    made = credit_of(RankCredit(reward="log_decay"), *lists)
    assert made.values[::4].tolist() == pytest.approx(methods.grpo(eps=1e-4).advantage(table).values.tolist())


def test_whitening_keeps_the_spans() -> None:
    part = WhitenedTokens(of=RankCredit())
    assert part.gives_spans
    assert not WhitenedTokens(of="token_return").gives_spans  # type: ignore[arg-type]
    made, bare = credit_of(part, TWO, TWO), credit_of(RankCredit(), TWO, TWO)
    assert made.span is not None
    assert made.span.tolist() == bare.span.tolist()  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"list_length": 0}, "list_length is 0 and item_relevance"),
        ({"item_relevance": [1, None]}, "one finite number per given item. Use an environment that"),
        ({"item_tokens": [[0, 2]]}, "belong to each of its 2 items; measure them with item_tokens"),
        (
            {"item_tokens": [[2, 3], [0, 2]]},
            r"item_tokens is \[\[2, 3\], \[0, 2\]\], but a begin and an end, one after",
        ),
        ({"item_tokens": [[0, 2], [2, 9]]}, "among the 4 sampled tokens"),
        ({"item_tokens": None}, "item_tokens is None"),
        ({"end_token": 4}, "end_token is 4, but the step has 4 sampled tokens; measure it with item_tokens"),
    ],
)
def test_info_that_do_not_fit_are_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(RecordError, match=words) as raised:
        credit_of(RankCredit(), TWO, {**TWO, **change})
    assert str(raised.value).startswith("task 't', rollout 1, step 0: ")


def test_rollouts_of_several_steps_are_refused() -> None:
    table = StepTable.from_columns(
        task=["t"] * 2,
        rollout=[0, 0],
        step=[0, 1],
        reward=[0.0, 1.0],
        **{name: [info_key] * 2 for name, info_key in TWO.items()},
    )
    tokens = TokenTable.from_rows(table, [{"response_ids": [1, 2, 3, 4]}] * 2)
    with pytest.raises(
        RecordError, match="its rollout has several steps, and rank_credit compares lists of one answer"
    ):
        RankCredit()(table, GRPO(table).by_step(), tokens)


def test_ratios_by_span_without_a_part_that_tells_them_are_refused_before_a_model_loads() -> None:
    whole = methods.rank_grpo()
    assert whole.loss is not None
    check_loss_context(whole, whole.loss)
    for other in (None, "discounted_tokens"):
        bare = whole.model_validate({**dict(whole), "token_credit": other})
        with pytest.raises(ConfigError) as raised:
            check_loss_context(bare, whole.loss)
        assert str(raised.value) == (
            "algorithm.loss: it computes ratios per span, but no part gives spans; choose a token_credit that gives "
            "spans, or ratios per step"
        )
