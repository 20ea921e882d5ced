"""Identity: the closed forms it promises."""

from __future__ import annotations

from itertools import product

import pytest

from groupwise import ConfigError
from groupwise.envs import SPLITS, Identity
from groupwise.envs.identity import WORDS


@pytest.mark.parametrize(("num_words", "length"), [(4, 1), (3, 2), (4, 3)])
def test_a_uniform_policy_earns_length_over_n_and_succeeds_with_n_to_the_minus_length(
    num_words: int, length: int
) -> None:
    part = Identity(num_words=num_words, length=length)
    task = part.task_set("train")[0]
    total, successes = 0.0, 0
    for answers in product(WORDS[:num_words], repeat=length):
        environment = part.open(task)
        outcomes = [environment.act(answer) for answer in answers]
        total += sum(outcome.reward for outcome in outcomes)
        successes += bool(outcomes[-1].success)
        assert [outcome.terminated for outcome in outcomes] == [False] * (length - 1) + [True]
    assert total / num_words**length == length / num_words
    assert successes == 1


def test_the_key_is_the_word_and_other_words_are_invalid() -> None:
    part = Identity(num_words=4, length=2)
    task = part.task_set("train")[0]
    environment = part.open(task)
    first, second = task.payload["words"]
    assert (environment.observe().text, environment.observe().state_key) == (f"Say {first}.", first)
    assert not environment.act("hotel").accepted
    assert environment.observe().state_key == second
    last = environment.act(second)
    assert (last.reward, last.success, last.observation.text) == (1.0, False, "Done.")


def test_task_sets_hold_every_sequence_once() -> None:
    part = Identity(num_words=5, length=2)
    sequences = [tuple(task.payload["words"]) for split in SPLITS for task in part.task_set(split)]
    assert len(sequences) == len(set(sequences)) == 5 * 4


@pytest.mark.parametrize("fields", [{"num_words": 3, "length": 1}, {"num_words": 2, "length": 3}])
def test_too_few_words_are_refused(fields: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="so few different tasks cannot fill three task sets; raise num_words"):
        Identity(**fields)
