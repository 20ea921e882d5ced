"""A judge in a run: asked once, counted, written down, and read from the record where the same is asked again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from groupwise import ConfigError, Task
from groupwise.parts.outside import only_reading
from groupwise.rollout.endpoint_judge import EndpointJudge
from groupwise.rollout.judges import FunctionJudge, JudgeQuestion, PhraseJudge
from groupwise.rollout.live_judge import JudgeCost, JudgeRecord, LiveJudge
from groupwise.system.errors import EngineFault, FileError
from tests.unit.rollout import graders
from tests.unit.rollout.fake_endpoint import FakeEndpoint, serve

PLACE = "tests.unit.rollout.graders"


def ask_about(*answers: str) -> list[JudgeQuestion]:
    return [JudgeQuestion(task=Task(id="q", payload={"n": 1}), context="c", answer=answer) for answer in answers]


def open_judge(path: Path, endpoint: FakeEndpoint, **fields: Any) -> LiveJudge:
    settings: dict[str, Any] = {"url": endpoint.url, "model": "grader", "retry_seconds": 0.0, "retries": 1} | fields
    return LiveJudge(EndpointJudge(**settings), path)


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_equal_questions_are_asked_once_and_the_record_is_read_later(tmp_path: Path) -> None:
    path = tmp_path / "judge.jsonl"
    with serve() as endpoint:
        cost = JudgeCost()
        first = open_judge(path, endpoint).ask(ask_about("a", "b", "a"), cost, update=1)
        assert first[0] == first[2]
        assert (cost.questions, cost.calls, cost.unreadable, cost.fallbacks) == (3, 2, 0, 0)
    again = JudgeCost()
    assert open_judge(path, endpoint).ask(ask_about("a", "b", "a"), again, update=1) == first, "nobody listens any more"
    assert again == cost, "what the update cost does not depend on when it was asked"
    later = JudgeCost()
    open_judge(path, endpoint).ask(ask_about("b"), later, update=2)
    assert (later.questions, later.calls) == (1, 0), "it was asked in update 1"


def test_a_line_holds_what_was_asked_answered_read_and_how_long_it_took(tmp_path: Path) -> None:
    path = tmp_path / "judge.jsonl"
    with serve(lambda request: "what?" if request["seed"] == 0 else "score: 4") as endpoint:
        cost = JudgeCost()
        assert open_judge(path, endpoint).ask(ask_about("open door"), cost, update=3) == [4.0]
    (line,) = read_lines(path)
    assert (line["update"], line["score"], line["is_fallback"]) == (3, 4.0, False)
    assert "open door" in line["asked"]["request"]["messages"][0]["content"]
    assert [call["answered"] for call in line["calls"]] == ["what?", "score: 4"]
    assert line["calls"][0]["fault"] == ("an answer without a score: it has no score where `pattern` looks for one")
    assert all(call["seconds"] >= 0 for call in line["calls"])
    assert (cost.calls, cost.unreadable) == (2, 1)


def test_the_key_is_written_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_JUDGE_KEY", "very-secret-value")
    path = tmp_path / "judge.jsonl"
    with serve(lambda _: "Your key is very-secret-value. score: 1") as endpoint:
        open_judge(path, endpoint, api_key="${SOME_JUDGE_KEY}").ask(ask_about("a"), JudgeCost(), update=1)
        assert "very-secret-value" in endpoint.headers[0]["Authorization"]
    assert "very-secret-value" not in path.read_text(encoding="utf-8")


def test_fallbacks_are_counted_and_stay_what_they_were(tmp_path: Path) -> None:
    path = tmp_path / "judge.jsonl"
    with serve(lambda _: 500) as endpoint:
        cost = JudgeCost()
        assert open_judge(path, endpoint, fallback=0.5).ask(ask_about("a"), cost, update=1) == [0.5]
        assert (cost.fallbacks, cost.calls, cost.unreadable) == (1, 2, 2)
        endpoint.say = lambda _: "score: 9"
        assert open_judge(path, endpoint, fallback=0.5).ask(ask_about("a"), cost, update=1) == [0.5]
    assert read_lines(path)[0]["is_fallback"] is True


def test_what_was_answered_before_a_failure_is_kept_and_the_rest_is_asked_on_resume(tmp_path: Path) -> None:
    path = tmp_path / "judge.jsonl"
    with serve(lambda request: 500 if "bad" in request["messages"][0]["content"] else "score: 2") as endpoint:
        live = open_judge(path, endpoint, concurrency=1)
        with pytest.raises(EngineFault, match=r"algorithm\.judge \(EndpointJudge\): the .* continue with --resume"):
            live.ask(ask_about("a", "b", "bad", "c"), JudgeCost(), update=1)
        asked = len(endpoint.requests)
        endpoint.say = lambda _: "score: 3"
        scores = open_judge(path, endpoint).ask(ask_about("a", "b", "bad", "c"), JudgeCost(), update=1)
        answered = sum(score == 2.0 for score in scores)
        assert answered >= 1
        assert len(endpoint.requests) - asked == 4 - answered


def test_the_budget_is_of_the_whole_run_and_looked_at_before_anything_is_asked(tmp_path: Path) -> None:
    path = tmp_path / "judge.jsonl"
    with serve() as endpoint:
        open_judge(path, endpoint, max_calls=3).ask(ask_about("a", "b"), JudgeCost(), update=1)
        with pytest.raises(EngineFault) as raised:
            open_judge(path, endpoint, max_calls=3).ask(ask_about("a", "c", "d"), JudgeCost(), update=2)
        assert len(endpoint.requests) == 2
        assert str(raised.value) == (
            "algorithm.judge (EndpointJudge): update 2 has 2 things to ask, and of 3 calls 2 are spent; raise "
            "algorithm.judge.max_calls and continue with --resume"
        )
        open_judge(path, endpoint, max_calls=3).ask(ask_about("a", "c"), JudgeCost(), update=2)


def test_another_way_to_read_asks_again(tmp_path: Path) -> None:
    path = tmp_path / "judge.jsonl"
    with serve(lambda _: "score: 7, so: yes") as endpoint:
        assert open_judge(path, endpoint).ask(ask_about("a"), JudgeCost(), update=1) == [7.0]
        chosen = open_judge(path, endpoint, choices=(("yes", 1.0),))
        assert chosen.ask(ask_about("a"), JudgeCost(), update=1) == [1.0]


def test_a_line_that_was_cut_short_is_dropped_and_another_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "judge.jsonl"
    with serve() as endpoint:
        scores = open_judge(path, endpoint).ask(ask_about("a", "b"), JudgeCost(), update=1)
        whole = path.read_bytes()
        path.write_bytes(whole[:-5])
        assert open_judge(path, endpoint).ask(ask_about("a", "b"), JudgeCost(), update=1) == scores
        assert len(endpoint.requests) == 3
        assert len(read_lines(path)) == 2
        path.write_bytes(b"{}\n" + whole)
        with pytest.raises(FileError) as raised:
            open_judge(path, endpoint)
    assert str(raised.value) == (
        f"{path}, line 1: this is no record of a judge's answer; restore the file, or take it away to have everything "
        "asked again"
    )


def test_a_rule_is_called_and_leaves_no_record(tmp_path: Path) -> None:
    live, cost = LiveJudge(PhraseJudge(phrases=(("please", 1.0),)), tmp_path / "judge.jsonl"), JudgeCost()
    assert live.ask(ask_about("please", "no"), cost, update=1) == [1.0, 0.0]
    assert (cost.questions, cost.calls, live.is_recorded) == (2, 0, False)
    assert list(tmp_path.iterdir()) == []


def test_a_function_is_called_once_for_equal_questions(tmp_path: Path) -> None:
    part, path = FunctionJudge(function=f"{PLACE}:count_words"), tmp_path / "judge.jsonl"
    graders.calls.clear()
    cost = JudgeCost()
    assert LiveJudge(part, path).ask(ask_about("a b", "c", "c"), cost, update=1) == [3.0, 2.0, 2.0]
    assert LiveJudge(part, path).ask(ask_about("c"), JudgeCost(), update=2) == [2.0]
    assert graders.calls == ["a b", "c"]
    assert cost.calls == 2
    assert read_lines(path)[0]["asked"] == {
        "function": f"{PLACE}:count_words",
        "task": {"id": "q", "payload": {"n": 1}},
        "context": "c",
        "answer": "a b",
        "said": "",
        "info": {},
    }
    assert part(ask_about("a b")) == [3.0]


@pytest.mark.parametrize(
    ("answer", "did"),
    [
        ("raise", "raised KeyError: 'no such thing'"),
        ("nan", "returned the float nan and no finite number"),
        ("text", "returned a str and no finite number"),
        ("yes", "returned the bool True and no finite number"),
    ],
)
def test_a_function_that_fails_ends_in_a_sentence_or_the_fallback(tmp_path: Path, answer: str, did: str) -> None:
    place, path = f"{PLACE}:fail_or_return_oddly", tmp_path / "judge.jsonl"
    with pytest.raises(EngineFault) as raised:
        LiveJudge(FunctionJudge(function=place), path).ask(ask_about("fine", answer), JudgeCost(), update=1)
    assert str(raised.value) == (
        f"algorithm.judge (FunctionJudge): {place} {did}; fix the function, or declare a `fallback`"
    )
    falls_back = LiveJudge(FunctionJudge(function=place, fallback=-1.0), path)
    assert falls_back.ask(ask_about("fine", answer), JudgeCost(), update=1) == [1.0, -1.0]


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("len", "'len' names no function; write package.module:function"),
        (f"{PLACE}:nobody", "cannot load the judge 'tests.unit.rollout.graders:nobody'"),
        (f"{PLACE}:NO_FUNCTION", "is not a function; name one"),
    ],
)
def test_a_function_that_is_not_there_is_refused_before_anything_is_played(
    tmp_path: Path, function: str, said: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        LiveJudge(FunctionJudge(function=function), tmp_path / "judge.jsonl").check()
    assert said in str(raised.value)


def test_reading_a_run_imports_no_function(tmp_path: Path) -> None:
    with only_reading():
        part = FunctionJudge(function="os:system")
        with pytest.raises(ConfigError, match="not loaded without --trust"):
            part(ask_about("a"))


def test_a_reader_leaves_a_line_that_is_being_written_alone(tmp_path: Path) -> None:
    path = tmp_path / "judge.jsonl"
    path.write_bytes(b'{"question": "half of')
    assert JudgeRecord(path, may_write=False).num_calls == 0
    assert path.read_bytes() == b'{"question": "half of'
    assert JudgeRecord(path).num_calls == 0
    assert path.read_bytes() == b""
