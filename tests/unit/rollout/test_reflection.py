"""Reflection: which tasks get hint, of which failure it is made, and what it says."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from groupwise import ConfigError, Origin
from groupwise.data.past_rollouts import PastRollout
from groupwise.methods.r3 import PROMPTS, Reflection
from groupwise.models.tiny import EXTRA_WORDS, make_word_tokenizer
from groupwise.store.journal import Journal
from tests.unit.pasts import journal, make_draw, rollout, update


def write_rollouts(folder: Path, **solved: Sequence[int]) -> Journal:
    """A journal in which each task was tried so often, with these successes."""
    rollouts = [rollout(i, task=task, solved=bool(s)) for task, all_s in solved.items() for i, s in enumerate(all_s)]
    return journal(folder, update(1, *rollouts))


def sources(past: Sequence[PastRollout]) -> list[tuple[str, int]]:
    return [(one.task, one.rollout) for one in past]


def say(ids: Sequence[int]) -> str:
    return " ".join(f"w{number}" for number in ids)


def test_hint_goes_to_the_tasks_below_tau(tmp_path: Path) -> None:
    made = write_rollouts(tmp_path, never=[0, 0, 0, 0], seldom=[0, 0, 0, 1], often=[1, 1, 0, 0])

    def choose_hinted(**fields: float) -> list[str]:
        tasks = ["often", "seldom", "never", "new", "never"]
        return [past.task for past in Reflection(**fields).choose(tasks, made.past_rollouts, draw=make_draw())]

    assert choose_hinted() == ["never"], "a quarter is not below a quarter, and what has no past gets no hint"
    assert choose_hinted(tau=0.26) == ["seldom", "never"], "in the order of the tasks, each once"
    assert choose_hinted(tau=0.9) == ["often", "seldom", "never"]
    assert choose_hinted(tau=0.9, max_tasks=2) == ["seldom", "never"], "those of lowest success"
    assert choose_hinted(tau=0.0) == []


def test_the_record_is_that_of_the_newest(tmp_path: Path) -> None:
    made = journal(tmp_path, update(1, *(rollout(i, solved=True) for i in range(4))), update(2, rollout(0), rollout(1)))
    assert Reflection().choose(["t"], made.past_rollouts, draw=make_draw()) == []
    assert len(Reflection(ring=2).choose(["t"], made.past_rollouts, draw=make_draw())) == 1


def test_a_failure_is_drawn_evenly_and_by_the_seed(tmp_path: Path) -> None:
    made = write_rollouts(tmp_path, t=[0, 0, 1, 0, 0, 0])
    drawn = [sources(Reflection().choose(["t"], made.past_rollouts, draw=make_draw(seed)))[0][1] for seed in range(300)]
    assert set(drawn) == {0, 1, 3, 4, 5}, "never the success"
    assert min(drawn.count(number) for number in set(drawn)) > 35
    assert drawn == [
        sources(Reflection().choose(["t"], made.past_rollouts, draw=make_draw(s)))[0][1] for s in range(300)
    ]


def test_rollouts_that_had_hint_themselves_are_not_shown(tmp_path: Path) -> None:
    hinted = [rollout(i, origin=Origin.REFLECTED) for i in range(1, 4)]
    made = journal(tmp_path, update(1, rollout(0), *hinted))
    drawn = {sources(Reflection().choose(["t"], made.past_rollouts, draw=make_draw(s)))[0][1] for s in range(20)}
    assert drawn == {0}


def test_a_response_is_shown_as_it_was_said_and_steps_as_what_was_seen_and_done() -> None:
    terse = Reflection(prompt="terse")
    assert terse.text(rollout(), say) == "failed before : w5 w3 . now do otherwise ."
    assert terse.text(rollout(states="ab"), say) == (
        "failed before : You see a. > go 0 You see b. > go 1 . now do otherwise ."
    )


def test_of_a_long_rollout_the_beginning_and_the_end_are_shown() -> None:
    long = rollout(states="abc")  # You see a. > go 0 You see b. > go 1 You see c. > go 2: 18 words
    whole = Reflection(prompt="terse", first_words=10, last_words=8).text(long, say)
    assert "..." not in whole
    cut = Reflection(prompt="terse", first_words=3, last_words=2).text(long, say)
    assert cut == "failed before : You see a. ... go 2 . now do otherwise ."
    assert "before :  ...  . now" in Reflection(prompt="terse", first_words=0, last_words=0).text(long, say)


@pytest.mark.parametrize("prompt", PROMPTS)
def test_a_tokenizer_made_from_scratch_knows_every_word_of_a_prompt(prompt: str) -> None:
    part = Reflection(prompt=prompt, first_words=3, last_words=1)
    tokenizer = make_word_tokenizer((*part.words(), *EXTRA_WORDS, "you", "see", "a", "b", "go", "1", "0"))
    ids = tokenizer.encode(part.text(rollout(states="ab"), say), add_special_tokens=False)
    assert tokenizer.unk_token_id not in ids
    assert len(ids) > 12


def test_a_prompt_of_ones_own_is_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    path.write_text("For $$5 you said: $rollout\nSay it better.\n", encoding="utf-8")
    part = Reflection(prompt=str(path))
    assert part.text(rollout(), say) == "For $5 you said: w5 w3\nSay it better."
    path.unlink()
    again = Reflection(**{key: value for key, value in part.config().items() if key != "kind"})
    assert again == part, "the configuration holds what the file said"
    assert again.text(rollout(), say) == "For $5 you said: w5 w3\nSay it better."


@pytest.mark.parametrize("text", ["Do better.", "You said $rollout for $5.", "$rollouts", "$rollout by $who"])
def test_a_prompt_that_could_not_be_filled_in_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "wrong.txt"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        Reflection(prompt=str(path))
    assert str(caught.value) == (
        f"Reflection: prompt: the prompt {str(path)!r} does not say `$rollout`, or says more with a dollar sign; put "
        "`$rollout` where the rollout is to stand, and write `$$` for a dollar"
    )


def test_a_prompt_that_is_not_there_is_named_with_the_nearest() -> None:
    with pytest.raises(ConfigError) as caught:
        Reflection(prompt="answr")
    assert str(caught.value) == (
        f"Reflection: prompt: the reflection prompt '{Path('answr').absolute()}' cannot be read (No such file or "
        "directory); give the path of a text file with `$rollout` in it, or a prompt that there is: did you mean "
        "'answer'? Valid: answer, rollout, terse"
    )


def test_successes_join_the_unhinted_group_only_where_that_is_asked_for() -> None:
    solved, failed = rollout(solved=True), rollout()
    assert [Reflection().joins_unhinted_group(one) for one in (solved, failed)] == [False, False]
    assert [Reflection(to_unhinted_prompt=True).joins_unhinted_group(one) for one in (solved, failed)] == [True, False]
