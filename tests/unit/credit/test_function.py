"""A plain function is a reward: of a trajectory, or with TRL's signature; one that cannot be called is a sentence."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from groupwise import ConfigError, RecordError, Task, Trajectory
from groupwise.credit import FunctionReward, StepReward, score_trajectory
from groupwise.parts.outside import only_reading
from tests.unit.credit import own_functions
from tests.unit.credit.rollouts import rollout

HERE = "tests.unit.credit.own_functions"


def make(name: str, **settings: object) -> FunctionReward:
    return FunctionReward(function=f"{HERE}:{name}", **settings)


def play(*responses: str, payload: dict[str, object] | None = None) -> Trajectory:
    played = rollout(*({"observation": f"seen {said}", "action": said, "tokens": len(said)} for said in responses))
    return replace(played, task=Task(id="t", payload=payload or {}))


def test_a_list_has_a_number_for_each_step_and_a_number_is_the_last_steps() -> None:
    assert make("count_tokens")(play("a", "bcd")) == (1.0, 3.0)
    assert make("pay_politeness", weight=0.5)(play("please", "go", "please")) == (0.0, 0.0, 1.0)
    assert make("count_tokens")(play()) == ()


def test_it_reads_what_was_said_where_somebody_can_decode_it() -> None:
    scored = score_trajectory(
        play("go", "go"),
        [make("pay_politeness"), StepReward(each=-0.25)],
        read_response=lambda ids: "please " * len(ids),
    )
    assert [step.reward for step in scored.steps] == [-0.25, 1.75]
    assert scored.scores == {"pay_politeness": 2.0, "step": -0.5, "accuracy": 2.0, "return": 1.5}


def test_trls_signature_is_called_with_a_batch_of_one_and_the_payload_as_columns() -> None:
    reward = make("match_answer")
    assert reward(play("red", "42", payload={"answer": "42", "level": 3})) == (0.0, 1.0)
    assert reward(play("41", payload={"answer": "42"})) == (0.0,)
    assert reward(play("?", payload={"answer": "42"})) == (0.0,)  # None pays nothing


def test_trls_signature_gets_text_or_messages() -> None:
    own_functions.SEEN.clear()
    make("note_all")(play("a", "bc", payload={"level": 3}))
    make("note_all", messages=True)(play("a", "bc"))
    assert own_functions.SEEN == [
        {"prompts": ["seen a"], "completions": ["bc"], "completion_ids": [[7, 7, 7]], "level": [3]},
        {
            "prompts": [[{"role": "user", "content": "seen a"}]],
            "completions": [
                [
                    {"role": "assistant", "content": "a"},
                    {"role": "user", "content": "seen bc"},
                    {"role": "assistant", "content": "bc"},
                ]
            ],
            "completion_ids": [[7, 7, 7]],
        },
    ]


def test_a_file_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text("def score(trajectory):\n    return len(trajectory.steps)\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert FunctionReward(function="mine.py:score")(play("a", "b")) == (0.0, 2.0)
    assert FunctionReward(function=f"{tmp_path}/mine.py:score").score_name == "score"


SIGNATURES = "give it (trajectory), (trajectory, responses) or TRL's (completions, **kwargs), and let it return numbers"


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("take_nothing", f"takes (); {SIGNATURES}"),
        ("take_two", f"takes (first: 'Trajectory', second: 'Trajectory'); {SIGNATURES}"),
        ("take_by_name", f"takes (*, trajectory: 'Trajectory'); {SIGNATURES}"),
        ("wait", f"is async or a generator, and takes (trajectory: 'Trajectory'); {SIGNATURES}"),
        ("yield_numbers", f"is async or a generator, and takes (trajectory: 'Trajectory'); {SIGNATURES}"),
        ("NOT_A_FUNCTION", "is not a function; give the name of a function"),
        ("missing", "has no attribute 'missing'; check the name after the colon"),
    ],
)
def test_a_function_that_cannot_be_called_is_refused_when_the_run_file_is_read(name: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as raised:
        make(name)
    assert str(raised.value).endswith(sentence)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("content", "place", "sentence"),
    [
        ("", "mine.py:score", "the file has no 'score'; give the name of a function in it"),
        ("raise SystemExit('away')", "mine.py:score", "raised SystemExit: away; fix the file"),
        ("", "yours.py:score", "/yours.py'; paths are relative to the run file"),
        ("", "score", "'score' is not the place of a function; write file.py:name or package.module:name"),
    ],
)
def test_a_file_that_has_no_such_function_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str, place: str, sentence: str
) -> None:
    (tmp_path / "mine.py").write_text(content, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as raised:
        FunctionReward(function=place)
    assert str(raised.value).endswith(sentence)


LINES = Path(own_functions.__file__).read_text(encoding="utf-8").splitlines()
FAILS = f"own_functions.py:{1 + LINES.index('    raise KeyError(PRICE)')}"
"""Where the function that fails does so."""
NO_NUMBER = "return a number, or a list of one for each step"


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("fail", f"task 't', rollout 3: reward '{HERE}:fail' raised KeyError: 'price' ({FAILS}); fix the function"),
        ("say_words", f"task 't', rollout 3: reward '{HERE}:say_words' returned a str; {NO_NUMBER}"),
        (
            "say_word_in_list",
            f"task 't', rollout 3: reward '{HERE}:say_word_in_list' returned a list whose element 0 is a str, found "
            "'a'; expected a number",
        ),
        (
            "say_word_for_second_step",
            f"task 't', rollout 3: reward '{HERE}:say_word_for_second_step' returned a list whose element 1 is a str, "
            "found 'b'; expected a number",
        ),
        ("say_nothing", f"task 't', rollout 3: reward '{HERE}:say_nothing' returned nothing; {NO_NUMBER}"),
        (
            "match_answer",
            f"task 't', rollout 3: reward '{HERE}:match_answer' takes 'answer', which the task's payload does not have "
            "(it is empty); add it to the tasks, or give a default",
        ),
        (
            "forget_batch",
            f"task 't', rollout 3: reward '{HERE}:forget_batch' got a batch of 1 completion and returned the "
            "float 0.5; return a list of one number for each",
        ),
    ],
)
def test_what_goes_wrong_at_work_names_the_rollout(name: str, sentence: str) -> None:
    with pytest.raises(RecordError) as raised:
        make(name)(play("a"))
    assert str(raised.value) == sentence


def test_a_list_of_another_length_is_a_sentence() -> None:
    with pytest.raises(RecordError, match="reward 'pay_twice' gave 2 numbers for 1 steps; give one per step"):
        score_trajectory(play("a"), [make("pay_twice")])


def test_who_only_reads_a_run_runs_no_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text("raise SystemExit('it ran')", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with only_reading():
        part = FunctionReward(function="mine.py:score")
        with pytest.raises(ConfigError, match="not loaded without --trust"):
            part(play("a"))


def test_a_reward_may_say_what_counts_as_solved_in_the_environments_place() -> None:
    played = replace(play("red", "42", payload={"answer": "42"}), scores={"success": 0.0})
    at = {bound: make("match_answer", weight=2.0, solved_at=bound) for bound in (2.0, 2.1)}
    assert score_trajectory(played, [at[2.0]]).scores["success"] == 1.0
    assert score_trajectory(played, [at[2.1]]).scores["success"] == 0.0
    assert score_trajectory(played, [make("match_answer")]).scores["success"] == 0.0
    assert "success" not in score_trajectory(replace(played, scores={}), [make("match_answer")]).scores


def test_columns_that_a_function_of_trls_needs_are_known_before_it_is_called() -> None:
    assert make("match_answer").find_missing_column({"level": 3}) == "answer"
    assert make("match_answer").find_missing_column({"answer": "42"}) == ""
    assert make("note_all").find_missing_column({}) == ""
    assert make("count_tokens").find_missing_column({}) == ""
