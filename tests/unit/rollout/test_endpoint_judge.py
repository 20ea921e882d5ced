"""A judge behind a server: what is sent, what is read, retries, refusals and fallbacks; against a server of ours."""

from __future__ import annotations

import time
from itertools import count
from typing import Any

import pytest
from pydantic import ValidationError

from groupwise import ConfigError, Task
from groupwise.rollout.endpoint_judge import NUMBER_AFTER_SCORE, EndpointJudge, read_choice, read_number
from groupwise.rollout.judges import JudgeQuestion
from groupwise.system.errors import EngineFault
from tests.unit.rollout.fake_endpoint import serve

TASK = Task(id="q", payload={"gold": "4", "terms": [2, 2]})


def ask_about(answer: str, context: str = "2 + 2?") -> JudgeQuestion:
    return JudgeQuestion(task=TASK, context=context, answer=answer)


def judge(at: str, **fields: Any) -> EndpointJudge:
    return EndpointJudge(**{"url": at, "model": "grader", "retry_seconds": 0.0, "timeout": 5.0, "retries": 2} | fields)


def test_what_is_asked_and_read() -> None:
    with serve(lambda request: f"score: {request['messages'][-1]['content'].count('please')}") as endpoint:
        asks = judge(endpoint.url, prompt="{context} / {answer} / {task.gold} / {task.terms}", system="Be fair.")
        assert asks([ask_about("please, please"), ask_about("{context}")]) == [2.0, 0.0]
        by_content = {request["messages"][-1]["content"]: request for request in endpoint.requests}
    assert by_content.keys() == {"2 + 2? / please, please / 4 / [2, 2]", "2 + 2? / {context} / 4 / [2, 2]"}
    for request in by_content.values():
        assert request["messages"][0] == {"role": "system", "content": "Be fair."}
        assert {name: request[name] for name in ("model", "temperature", "seed", "max_tokens")} == {
            "model": "grader",
            "temperature": 0.0,
            "seed": 0,
            "max_tokens": 512,
        }


def test_info_and_what_was_said_before_can_be_shown() -> None:
    question = JudgeQuestion(task=TASK, context="", answer="b", said="a;", info={"exact": True, "calls": []})
    with serve() as endpoint:
        judge(endpoint.url, prompt="{said}{answer} {info} {info.exact} {info.nothing}.")([question])
    assert endpoint.requests[0]["messages"][0]["content"] == 'a;b {"calls": [], "exact": true} true .'


def test_the_key_is_sent_and_comes_from_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_JUDGE_KEY", "very-secret-value")
    with serve() as endpoint:
        judge(endpoint.url, api_key="${SOME_JUDGE_KEY}")([ask_about("a")])
        assert endpoint.headers[0]["Authorization"] == "Bearer very-secret-value"
    monkeypatch.delenv("SOME_JUDGE_KEY")
    with pytest.raises(ConfigError) as raised:
        judge("http://127.0.0.1:9/v1", api_key="${SOME_JUDGE_KEY}").check(is_new=True)
    assert str(raised.value) == (
        "the environment variable SOME_JUDGE_KEY is not set, but a setting uses it as ${SOME_JUDGE_KEY}; set it"
    )


def test_a_key_that_no_header_may_hold_is_refused_without_showing_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGE_KEY", "very\nsecret")
    broken = judge("http://127.0.0.1:9/v1", api_key="${JUDGE_KEY}")
    with pytest.raises(ConfigError, match="a character that no header may") as caught:
        broken.check(is_new=False)
    assert "secret" not in str(caught.value)
    monkeypatch.setenv("JUDGE_KEY", "sound\r\n")  # from a file with line ends of Windows
    assert broken._make_headers() == {"Authorization": "Bearer sound"}


def test_fields_that_servers_differ_in() -> None:
    with serve() as endpoint:
        asks = judge(endpoint.url, temperature=None, seed=None, body={"max_tokens": None, "max_completion_tokens": 7})
        asks([ask_about("a")])
    (request,) = endpoint.requests
    assert (request["max_tokens"], request["max_completion_tokens"]) == (None, 7)
    assert "temperature" not in request
    assert "seed" not in request


def test_samples_have_seeds_of_their_own_and_are_averaged() -> None:
    with serve(lambda request: f"score: {request['seed']}") as endpoint:
        asks = judge(endpoint.url, samples=3, temperature=1.0, seed=4)
        assert asks([ask_about("a"), ask_about("b")]) == [5.0, 5.0]
    assert len(endpoint.requests) == 6


def test_an_answer_without_a_score_is_asked_for_again_with_another_seed() -> None:
    with serve(lambda request: "I cannot say." if request["seed"] < 2 else "**Score:** 6.5") as endpoint:
        ((_, judgement),) = judge(endpoint.url).ask(judge(endpoint.url).write_questions(ask_about("a")))
    assert judgement.score == 6.5
    assert [request["seed"] for request in endpoint.requests] == [0, 1, 2]
    assert [call.answered for call in judgement.calls] == ["I cannot say.", "I cannot say.", "**Score:** 6.5"]
    assert [bool(call.fault) for call in judgement.calls] == [True, True, False]


def test_a_server_that_fails_is_asked_again() -> None:
    numbers = count()
    with serve(lambda _: [503, b"garbage", "score: 3"][next(numbers)]) as endpoint:  # type: ignore[return-value]
        assert judge(endpoint.url)([ask_about("a")]) == [3.0]
        assert [request["seed"] for request in endpoint.requests] == [0, 0, 0], (
            "nothing was answered: the same is asked"
        )


def test_garbage_ends_in_a_sentence() -> None:
    with serve(lambda _: "Bananas!") as endpoint, pytest.raises(EngineFault) as raised:
        judge(endpoint.url)([ask_about("a")])
    assert str(raised.value) == (
        f"the judge 'grader': the model at {endpoint.url} was asked 3 times and gave an answer without a score: it has "
        "no score where `pattern` looks for one (it said: 'Bananas!'); have the prompt ask for what is read, read what "
        "it says with `pattern` or `choices`, or declare a `fallback`"
    )


def test_a_dead_server_ends_in_a_sentence_before_anything_is_played() -> None:
    with serve() as endpoint:
        url = endpoint.url
        judge(url).check(is_new=True)
        endpoint.models_status = 404  # some have no such route
        judge(url).check(is_new=True)
        endpoint.models_status = 401
        with pytest.raises(EngineFault, match="it wants a key; set the environment variable"):
            judge(url).check(is_new=True)
    with pytest.raises(EngineFault) as raised:
        judge(url).check(is_new=True)
    assert str(raised.value) == (
        f"algorithm.judge: the server {url} cannot be reached to say which models it has (Connection refused); start "
        "it, or correct its URL"
    )
    judge(url).check(is_new=False)
    judge(url, fallback=0.0).check(is_new=True)
    with pytest.raises(EngineFault, match=r"start it, or correct its URL \(asked 3 times\), then continue"):
        judge(url)([ask_about("a")])


@pytest.mark.parametrize("said", ["Bananas!", 500, 429, 400, b"no json", b'{"choices": []}', b"[]"])
def test_a_declared_fallback_stands_for_what_does_not_come(said: Any) -> None:
    with serve(lambda _: said) as endpoint:
        asks = judge(endpoint.url, fallback=2.5)
        ((_, judgement),) = asks.ask(asks.write_questions(ask_about("a")))
        assert (judgement.score, judgement.is_fallback) == (2.5, True)
        assert len(judgement.calls) == len(endpoint.requests) == (1 if said == 400 else 3)
        assert asks([ask_about("a")]) == [2.5]


@pytest.mark.parametrize(
    ("status", "advice"),
    [
        (401, "set the environment variable that algorithm.judge.api_key names"),
        (403, "give another key or another algorithm.judge.model"),
        (404, "correct algorithm.judge.url, which ends with the version as in /v1, and algorithm.judge.model"),
    ],
)
def test_no_fallback_hides_a_wrong_setting(status: int, advice: str) -> None:
    with serve(lambda _: status) as endpoint:
        with pytest.raises(EngineFault, match=advice):
            judge(endpoint.url, fallback=0.0)([ask_about("a")])
        assert len(endpoint.requests) == 1, "asking again would not help"


def test_a_server_that_hangs_is_given_up() -> None:
    def hang(_: object) -> str:
        time.sleep(0.5)
        return "score: 1"

    with serve(hang) as endpoint, pytest.raises(EngineFault, match=r"did not judge an answer within 0\.05 s"):
        judge(endpoint.url, timeout=0.05, retries=0)([ask_about("a")])


def test_calls_are_made_several_at_a_time_and_no_more() -> None:
    def dawdle(_: object) -> str:
        time.sleep(0.02)
        return "score: 1"

    with serve(dawdle) as endpoint:
        judge(endpoint.url, concurrency=3)([ask_about(str(number)) for number in range(12)])
        assert 1 < endpoint.max_under_way <= 3


def test_after_an_answer_without_a_score_nothing_else_is_begun() -> None:
    with serve(lambda _: "Bananas!") as endpoint:
        asks = judge(endpoint.url, concurrency=2, retries=0)
        asked = [sample for number in range(40) for sample in asks.write_questions(ask_about(str(number)))]
        judgements = dict(asks.ask(asked))
        assert len(endpoint.requests) < 40
        assert len([1 for judgement in judgements.values() if judgement.calls]) == len(endpoint.requests)


def test_halves_of_characters_and_endless_answers_can_be_asked_about() -> None:
    with serve() as endpoint:
        judge(endpoint.url)([ask_about("\ud800"), ask_about("x" * 100_000)])
        assert all(len(request["messages"][0]["content"]) < 25_000 for request in endpoint.requests)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"url": "grader:8000"}, "'grader:8000' is not the URL of a server; expected"),
        ({"url": "https://me:pw@host/v1"}, "is not the URL of a server"),
        ({"prompt": "How good?"}, "prompt does not show the judged text; put {answer} into it"),
        ({"prompt": "{answer} {contex}"}, "prompt names {contex}, which no question has; did you mean 'context'?"),
        ({"prompt": "{answer.x}"}, "prompt names {answer.x}, which no question has"),
        ({"pattern": "("}, "pattern '(' is not a regular expression"),
        ({"pattern": "score"}, "pattern 'score' has 0 groups; put the score alone into ( )"),
        ({"lowest": 3.0, "highest": 3.0}, "lowest 3 is not below highest 3; no number would be a score"),
        ({"samples": 2}, "several samples at temperature 0, or without a seed, are one"),
        ({"api_key": "abc"}, "api_key would be kept in the run's folder; write the variable that holds it: '${NAME}'"),
    ],
)
def test_settings_that_cannot_be_meant(fields: dict[str, Any], said: str) -> None:
    with pytest.raises((ConfigError, ValidationError)) as raised:
        judge("http://127.0.0.1:9/v1", **fields)
    assert said in str(raised.value)


def test_numbers_and_choices() -> None:
    assert read_number("score 3, no: score: 4.5", NUMBER_AFTER_SCORE, lowest=0, highest=10) == 4.5
    assert read_number('{"score": 7}', NUMBER_AFTER_SCORE, lowest=0, highest=10) == 7.0
    assert read_number("score: -1", NUMBER_AFTER_SCORE, lowest=None, highest=10) == -1.0
    assert read_number("underscore: 5", NUMBER_AFTER_SCORE, lowest=0, highest=10) == (
        "it has no score where `pattern` looks for one"
    )
    assert read_number("score: -1", NUMBER_AFTER_SCORE, lowest=0, highest=None) == (
        "the score -1 is not from 0 to anything"
    )
    assert read_number("x", "(x)", lowest=None, highest=None) == "the match of `pattern` is not a number"
    assert read_number("inf", "(inf)", lowest=None, highest=None) == "the score is not finite"
    choices = [("good", 1.0), ("very good", 2.0), ("bad", 0.0)]
    assert read_choice("Bad? No: VERY GOOD!", choices) == 2.0
    assert read_choice("goodness", choices) == "it is none of the `choices`"
