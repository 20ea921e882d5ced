"""Tokens under memories: what is counted, what is put together to the token, what is estimated or refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.report.audit_memories import (
    ESTIMATED,
    NO_DIALOGUE,
    NO_IDS,
    SAME_STEPS,
    MemoryCosts,
    MemoryLine,
    count_memory_costs,
)
from groupwise.report.audit_tokens import RecordedTokens
from groupwise.rollout.prompts import AnchoredWindow, Full, Memory, Window
from groupwise.system.errors import RecordError

END, ASK, TURN = 1, 2, 3
"""Frame of the dialogues below: the end of a response, what asks for one, what opens a turn after the first."""
OPENING = [0, 50, 51, 52]


def prompt(memory: Memory, seen: Sequence[list[int]], said: Sequence[list[int]], step: int) -> list[int]:
    """The prompt of a step, by a loop: opening, what memory shows, what is seen now."""
    ids, first = list(OPENING), memory.first_shown(step)
    for past in range(first, step):
        ids += [*seen[past], ASK, *said[past]]
        ids += [] if said[past][-1:] == [END] else [END]
        ids.append(TURN)
    return [*ids, *seen[step], ASK]


def rows(memory: Memory, attempts: Sequence[Sequence[tuple[list[int], list[int]]]], task: str = "t") -> list[Any]:
    """A group of attempts, each a list of what was seen and said, as the engine was given it."""
    recorded = []
    for attempt, steps in enumerate(attempts):
        seen, said = [one for one, _ in steps], [other for _, other in steps]
        recorded += [
            {
                "task": task,
                "attempt": attempt,
                "index": step,
                "reward": 0.0,
                "observation": "x" * (4 * len(seen[step])),
                "prompt_ids": prompt(memory, seen, said, step),
                "response_ids": said[step],
                "cut": said[step][-1:] != [END],
            }
            for step in range(len(steps))
        ]
    return recorded


def count_costs(recorded: Sequence[Any], *memories: Memory, max_tokens: int = 10**6) -> MemoryCosts:
    tokens = RecordedTokens(max_tokens)
    for row in recorded:
        tokens.add(row)
    return count_memory_costs(tokens, {str(number): memory for number, memory in enumerate(memories)})


def by_hand(name: str, recorded: Sequence[Any], *, is_exact: bool = True) -> MemoryLine:
    """The same numbers by loops: distinct prefixes, gathered in a set."""
    samples = [tuple(row["prompt_ids"] + row["response_ids"]) for row in recorded]
    prefixes = {
        (row["task"], sample[:length])
        for row, sample in zip(recorded, samples, strict=True)
        for length in range(1, len(sample) + 1)
    }
    raw = sum(map(len, samples))
    return MemoryLine(
        memory=name,
        raw_tokens=raw,
        computed_tokens=len(prefixes),
        longest=max(map(len, samples)),
        ratio=raw / len(prefixes),
        is_exact=is_exact,
    )


LONG = [[([10 + step, 20], [30 + step, END]) for step in range(5)], [([10, 20], [40, END]), ([11, 20], [31, END])]]


def test_two_attempts_by_hand() -> None:
    # Attempt 0: prompts 0 50 10 2 and 0 50 10 2 30 1 3 11 2, responses 30 1 and 31 1; attempt 1: the first prompt, 40.
    first = [0, 50, 10, ASK]
    recorded = [
        {"task": "t", "attempt": 0, "index": 0, "reward": 0.0, "prompt_ids": first, "response_ids": [30, END]},
        {
            "task": "t",
            "attempt": 0,
            "index": 1,
            "reward": 0.0,
            "prompt_ids": [*first, 30, END, TURN, 11, ASK],
            "response_ids": [31, END],
        },
        {"task": "t", "attempt": 1, "index": 0, "reward": 0.0, "prompt_ids": first, "response_ids": [40, END]},
    ]
    # 6 + 11 + 6 tokens; distinct: the 11 of the second, and 40 1 of the third.
    assert count_costs(recorded, Full()) == MemoryCosts(
        groups=1,
        attempts=2,
        left_out=0,
        lines=[
            MemoryLine(memory=name, raw_tokens=23, computed_tokens=13, longest=11, ratio=23 / 13, is_exact=True)
            for name in ("as recorded", "0")
        ],
        notes=[SAME_STEPS],
    )


@pytest.mark.parametrize("other", [Window(steps=1), Window(steps=0), AnchoredWindow(low=1, high=2), Full()])
@pytest.mark.parametrize("memory", [Window(steps=1), Window(steps=2), AnchoredWindow(low=1, high=2)])
def test_prompts_of_a_memory_that_forgets_give_those_of_every_other_to_the_token(memory: Memory, other: Memory) -> None:
    costs = count_costs(rows(memory, LONG), other)
    assert costs.lines == [by_hand("as recorded", rows(memory, LONG)), by_hand("0", rows(other, LONG))]
    assert costs.notes == [SAME_STEPS]


word = st.integers(10, 13)
turn = st.tuples(st.lists(word, min_size=1, max_size=3), st.lists(word, min_size=1, max_size=2))
dialogue = st.lists(st.tuples(turn, st.booleans()), min_size=5, max_size=7).map(
    lambda steps: [(seen, [*said, END] if ended else said) for (seen, said), ended in steps]
)


@given(st.lists(dialogue, min_size=1, max_size=3), st.sampled_from([Window(steps=1), Window(steps=3), Full()]))
def test_any_dialogue_is_put_together_to_the_token(attempts: list[Any], other: Memory) -> None:
    attempts = [[(attempts[0][0][0], steps[0][1]), *steps[1:]] for steps in attempts]  # one task: one beginning
    recorded = rows(Window(steps=2), attempts)
    costs = count_costs(recorded, Window(steps=2), other)
    assert costs.lines == [
        by_hand("as recorded", recorded),
        by_hand("0", recorded),
        by_hand("1", rows(other, attempts)),
    ]


def test_a_response_that_was_cut_off_is_closed_in_later_prompts_only() -> None:
    attempts = [[([10, 20], [30, 31]), *LONG[0][1:]], LONG[1]]
    costs = count_costs(rows(Window(steps=2), attempts), Full())
    assert costs.lines[1] == by_hand("0", rows(Full(), attempts))


def test_where_nothing_was_forgotten_the_opening_is_estimated_from_the_texts() -> None:
    costs = count_costs(rows(Full(), LONG), Window(steps=1), AnchoredWindow(low=2, high=4), Full())
    assert [line.is_exact for line in costs.lines] == [True, False, True, True]
    # Texts are as long here as their tokens say, so that the estimate hits the number of tokens.
    truth = by_hand("0", rows(Window(steps=1), LONG))
    assert (costs.lines[1].raw_tokens, costs.lines[1].longest) == (truth.raw_tokens, truth.longest)
    assert costs.notes == [ESTIMATED, SAME_STEPS]


def test_a_past_in_other_words_makes_every_line_an_estimate() -> None:
    recorded = rows(Window(steps=2), LONG)
    for row in recorded:
        if row["index"] >= 3:
            row["prompt_ids"][1] = 99  # an opening that says the number of the step
    costs = count_costs(recorded, Full())
    assert [line.is_exact for line in costs.lines] == [True, False]
    assert costs.notes == [
        "~ estimated: put together again, 2 of 7 recorded prompts come out different.",
        SAME_STEPS,
    ]


def test_prompts_that_do_not_go_on_are_counted_as_recorded_only() -> None:
    recorded = rows(Window(steps=0), LONG)
    costs = count_costs(recorded, Full())
    assert costs == MemoryCosts(
        groups=1, attempts=2, left_out=0, lines=[by_hand("as recorded", recorded)], notes=[NO_DIALOGUE]
    )


def test_attempts_without_ids_are_left_out() -> None:
    recorded = rows(Window(steps=2), LONG)
    del recorded[-1]["prompt_ids"]
    costs = count_costs(recorded, Window(steps=2))
    assert (costs.attempts, costs.left_out) == (1, 1)
    assert costs.lines[1] == by_hand("0", rows(Window(steps=2), LONG[:1]))
    for row in recorded:
        row.pop("prompt_ids", None)
    assert count_costs(recorded, Full()) == MemoryCosts(groups=0, attempts=0, left_out=2, lines=[], notes=[NO_IDS])


def test_an_attempt_that_misses_a_step_is_left_out() -> None:
    recorded = [row for row in rows(Full(), LONG) if (row["attempt"], row["index"]) != (0, 2)]
    assert (count_costs(recorded, Full()).attempts, count_costs(recorded, Full()).left_out) == (1, 1)


def test_groups_share_nothing_and_only_the_first_are_counted() -> None:
    recorded = rows(Full(), LONG) + rows(Full(), LONG, task="u")
    both = count_costs(recorded, Full())
    one = count_costs(recorded, Full(), max_tokens=1)
    assert (both.groups, one.groups) == (2, 1)
    assert both.lines[1].computed_tokens == 2 * one.lines[1].computed_tokens
    assert one.lines == [by_hand("as recorded", rows(Full(), LONG)), by_hand("0", rows(Full(), LONG))]


def test_an_id_that_no_tokenizer_gives_is_refused() -> None:
    recorded = rows(Full(), LONG)
    recorded[3]["response_ids"] = [2**70]
    with pytest.raises(RecordError) as refused:
        count_costs(recorded, Full())
    assert str(refused.value) == (
        "task 't', attempt 0, step 3: a token id has more than 64 bits; record the ids that the tokenizer gave"
    )


CHAT = (
    "{% for m in messages %}{{ 'user : ' if m.role == 'user' else 'bot : ' }}{{ m.content }}"
    "{{ '</s>' if m.role == 'assistant' else ' . ' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'bot : ' }}{% endif %}"
)


@pytest.mark.parametrize("chat", [None, CHAT])
def test_the_loops_own_prompts_are_put_together_to_the_token(chat: str | None) -> None:
    pytest.importorskip("torch")
    from groupwise.envs.environment import Observation
    from groupwise.models.tiny import make_word_tokenizer
    from groupwise.rollout.prompts import Prompter, PromptTemplate

    tokenizer = make_word_tokenizer(("do", "it", "goal", ":", ">", "see", "mug", "cup", "take", ".", "user", "bot"))
    tokenizer.chat_template = chat

    def play(memory: Memory) -> list[Any]:
        made = Prompter(tokenizer, template=PromptTemplate(), memory=memory, instruction="do it")
        past, recorded = [], []
        for step, noun in enumerate(("mug", "cup", "mug", "it", "cup")):
            seen, response = Observation(text=f"see {noun}"), (*made.encode(f"take {noun}"), made.frame.end_id)
            given = made.prompt(made.encode_opening("take cup"), past, seen)
            ids = {"prompt_ids": list(given), "response_ids": list(response)}
            recorded.append({"task": "t", "attempt": 0, "index": step, "reward": 0.0, **ids})
            past.append(made.make_exchange(seen, response, f"take {noun}"))
        return recorded

    for other in (Window(steps=1), AnchoredWindow(low=1, high=3), Full()):
        assert count_costs(play(Window(steps=2)), other).lines[1] == by_hand("0", play(other))
