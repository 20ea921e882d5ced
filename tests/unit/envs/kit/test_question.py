"""A question: one response ends the rollout, with the verifier's score, or with none and the reason."""

from __future__ import annotations

from dataclasses import replace

import pytest

from groupwise.data.records import Task
from groupwise.envs.environment import Expert, RolloutEnded
from groupwise.envs.kit.answers import Question, QuestionEnvironment, open_question
from groupwise.envs.kit.words import MAX_COLLECTED_WORDS, collect_vocabulary
from groupwise.envs.verifier.verifier import Verdict

TASK = Task.create(env="q")
SCORES = {"42": 1.0, "41": 0.25}
QUESTION = Question(
    text="What is 6 * 7?", stored="42", form="tags", judge=lambda answer: Verdict(score=SCORES.get(answer, 0.0))
)


def open_changed(**changes: object) -> QuestionEnvironment:
    return open_question(TASK, replace(QUESTION, **changes), max_steps=1)  # type: ignore[arg-type]


def answer(environment: QuestionEnvironment, response: str) -> tuple[object, ...]:
    outcome = environment.act(response)
    return (
        outcome.observation.text,
        outcome.reward,
        outcome.success,
        outcome.accepted,
        outcome.terminated,
        outcome.note,
    )


def test_a_response_ends_the_rollout_with_the_verifiers_score() -> None:
    assert open_changed().observe().text == open_changed().observe().state_key == "What is 6 * 7?"
    assert answer(open_changed(), "<answer>42</answer>") == ("Right.", 1.0, True, True, True, "")
    assert answer(open_changed(), "<answer>41</answer>") == ("Wrong.", 0.25, False, True, True, "")
    assert answer(open_changed(), "42") == ("That is not an answer.", 0.0, False, False, True, "")


def test_the_threshold_says_what_counts_as_solved() -> None:
    assert answer(open_changed(solved_at=0.25), "<answer>41</answer>") == ("Right.", 0.25, True, True, True, "")


def test_a_partial_score_may_earn_nothing() -> None:
    assert answer(open_changed(allow_partial=False), "<answer>41</answer>") == ("Wrong.", 0.0, False, True, True, "")
    assert answer(open_changed(allow_partial=False), "<answer>42</answer>") == ("Right.", 1.0, True, True, True, "")


def test_a_verdict_that_did_not_come_is_a_failure_with_a_note() -> None:
    silent = open_changed(judge=lambda answer: Verdict(score=0.0, reason="it hung"))
    assert answer(silent, "<answer>42</answer>") == ("Wrong.", 0.0, False, True, True, "it hung")


def test_an_answer_in_other_case_and_spacing_counts_only_where_it_is_said() -> None:
    asked: list[str] = []

    def judge(answer: str) -> Verdict:
        asked.append(answer)
        return Verdict(score=float(answer == "Daniel-3"))

    for match_words, success in ((False, False), (True, True)):
        environment = open_changed(stored="Daniel-3", form="whole", judge=judge, match_words=match_words)
        assert environment.act("daniel-3").success is success
    assert asked == ["daniel-3", "Daniel-3"]


def test_the_expert_says_the_stored_answer_and_is_absent_where_there_is_none() -> None:
    environment = open_changed()
    assert isinstance(environment, Expert)
    assert environment.expert() == "<answer>42</answer>"
    environment.act("x")
    assert environment.expert() is None
    assert not isinstance(open_changed(stored=None), Expert)


def test_a_fork_goes_its_own_way() -> None:
    environment = open_changed()
    fork = environment.fork()
    assert answer(fork, "<answer>42</answer>")[0] == "Right."
    assert environment.observe().text == "What is 6 * 7?"
    with pytest.raises(RolloutEnded):
        fork.act("again")
    assert isinstance(fork, Expert)


def test_a_vocabulary_keeps_the_most_frequent_words_and_those_it_must() -> None:
    assert collect_vocabulary(["b a", "b c."], "Right. z") == (".", "a", "b", "c", "right", "z")
    many = [f"w{number}" for number in range(MAX_COLLECTED_WORDS + 5)]
    vocabulary = collect_vocabulary([*many, "w9", "zz zz"], "q")
    assert len(vocabulary) == MAX_COLLECTED_WORDS + 1
    assert {"w9", "zz", "q"} <= set(vocabulary)
