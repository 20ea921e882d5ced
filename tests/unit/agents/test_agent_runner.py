"""Agents as rollouts: steps, ends, time limits, and calls that come at the same time or twice."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import pytest

from groupwise.agents import endpoint
from groupwise.agents.sessions import Ended, Session
from groupwise.agents.state_rules import ExchangeStateRule
from groupwise.data.records import StopReason, Trajectory
from groupwise.engines.engine import Generation, Request
from groupwise.engines.scripted import ScriptedEngine
from groupwise.system.errors import EnvironmentFault
from tests.unit.agents.scripted_calls import TOOLS, Client, make_tool_tokenizer, play_agents, write_call


def text_of(ids: Sequence[int]) -> str:
    return str(make_tool_tokenizer().decode(list(ids)))


def use_tool(session: Session, *, calls: int = 2) -> dict[str, Any]:
    """Ask, answer the calls of the reply, and ask again."""
    client, messages = Client(session.url, session.key), [{"role": "user", "content": "Find a mug."}]
    for _ in range(calls):
        reply = client.ask(messages, tools=TOOLS)
        messages.append(reply)
        messages += [
            {"role": "tool", "tool_call_id": call["id"], "content": "nothing"} for call in reply.get("tool_calls", ())
        ]
    return {"reward": 1.0, "tools": 2}


def test_a_rollout_has_one_step_per_call() -> None:
    def agent(session: Session) -> Any:
        session.state("start")
        result = use_tool(session)
        session.reward(0.25)
        return result

    [played] = play_agents(agent, ["Hm. " + write_call("find", q="mug"), "It is gone."])
    assert [step.action for step in played.steps] == [
        '{"content":"Hm.","role":"assistant","tool_calls":[{"function":{"arguments":"{\\"q\\": \\"mug\\"}",'
        '"name":"find"},"type":"function"}]}',
        '{"content":"It is gone.","role":"assistant"}',
    ]
    assert [step.state_key for step in played.steps] == ["start", None]
    assert [step.reward for step in played.steps] == [0.0, 1.25]
    assert played.steps[1].info == {"tools": 2}
    assert (played.stop, played.scores["success"]) == (StopReason.TERMINATED, 1.0)
    first, second = (json.loads(step.observation or "") for step in played.steps)
    assert first == {"messages": [{"content": "Find a mug.", "role": "user"}], "tools": TOOLS}
    assert [message["role"] for message in second["messages"]] == ["tool"]


def test_a_rule_gives_the_states_that_neither_agent_nor_tool_says() -> None:
    def agent(session: Session) -> float:
        client, messages = Client(session.url, session.key), [{"role": "user", "content": "Find a mug."}]
        for result in ("nothing", '{"found": 1, "_state": "kitchen"}', None):
            reply = client.ask(messages, tools=TOOLS)
            [call] = reply["tool_calls"]
            messages += [reply, {"role": "tool", "tool_call_id": call["id"], "content": result}]
        return 0.0

    [played] = play_agents(agent, lambda prompt: write_call("find", q="mug"), state=ExchangeStateRule())
    assert [step.state_key for step in played.steps] == [
        '{"writes":[],"calls":[],"user":[1]}',
        '{"writes":[],"calls":[["find",{"q":"mug"},"nothing"]],"user":[0]}',
        "kitchen",
    ]


def test_sampled_ids_are_kept_and_prompts_continue_each_other() -> None:
    response = f"{write_call('find', q='mug')}"
    [kept] = play_agents(use_tool, [response, "Gone."])
    first, second = kept.steps
    before = first.prompt_ids + first.response_ids
    assert second.prompt_ids[: len(before)] == before
    rest = text_of(second.prompt_ids[len(before) :])
    assert rest == "\n<|im_start|>user\n<tool_response>\nnothing\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
    [rendered] = play_agents(use_tool, [response, "Gone."], earlier_replies="render")
    assert text_of(rendered.steps[1].prompt_ids).endswith(rest)
    # The template puts a line break before the call, which the model did not write.
    assert rendered.steps[1].prompt_ids != second.prompt_ids


def test_a_reply_that_was_changed_is_rendered_as_it_came_back() -> None:
    def agent(session: Session) -> float:
        client, messages = Client(session.url, session.key), [{"role": "user", "content": "Hi."}]
        client.ask(messages)
        client.ask([*messages, {"role": "assistant", "content": "I said this."}, {"role": "user", "content": "And?"}])
        return 0.0

    [played] = play_agents(agent, ["One.", "Two."])
    assert "I said this." in text_of(played.steps[1].prompt_ids)
    assert "One." not in text_of(played.steps[1].prompt_ids)
    assert len(json.loads(played.steps[1].observation or "")["messages"]) == 3


@pytest.mark.parametrize(
    ("result", "reward", "success", "stop"),
    [
        (1, 1.0, 1.0, StopReason.TERMINATED),
        (0.5, 0.5, 0.0, StopReason.TERMINATED),
        ({"reward": 0.5, "success": True}, 0.5, 1.0, StopReason.TERMINATED),
        (Ended(reward=2.0, success=False), 2.0, 0.0, StopReason.TERMINATED),
        (Ended(reward=0.0, truncated=True), 0.0, 0.0, StopReason.TRUNCATED),
    ],
)
def test_how_an_agent_says_its_result(result: Any, reward: float, success: float, stop: StopReason) -> None:
    def agent(session: Session) -> Any:
        Client(session.url, session.key).ask([{"role": "user", "content": "Hi."}])
        return result

    [played] = play_agents(agent, ["Hi."])
    assert (played.steps[-1].reward, played.scores["success"], played.stop) == (reward, success, stop)


def test_failures_of_the_model_count_and_other_exceptions_are_errors() -> None:
    class ModelFailed(Exception):
        pass

    def fail(error: BaseException) -> list[Trajectory]:
        def agent(session: Session) -> None:
            Client(session.url, session.key).ask([{"role": "user", "content": "Hi."}])
            raise error

        return play_agents(agent, ["Hi."], failures=(f"{__name__}.test_failures",))

    [failed] = fail(ModelFailed("no such tool"))
    assert (failed.stop, failed.scores["success"]) == (StopReason.TERMINATED, 0.0)
    assert failed.error == "the agent raised ModelFailed: no such tool"
    for error in (ConnectionError("the mail server is down"), SystemExit(1)):
        [errored] = fail(error)
        assert errored.stop == StopReason.ERROR
        assert (errored.error or "").startswith(f"the agent raised {type(error).__name__}")
        assert "success" not in errored.scores


@pytest.mark.parametrize(
    ("result", "error"),
    [
        ("yes", "the agent raised EnvironmentFault: the agent returned a str; return a reward, a dict with a"),
        ({"score": 1}, "the agent raised EnvironmentFault: the agent returned a dict with 'score'; add 'reward'"),
        (float("nan"), "Outcome.reward is nan"),
        (Ended(reward=None), "Outcome.reward is None"),  # type: ignore[arg-type]
        (Ended(reward="1"), "Outcome.reward is '1'"),  # type: ignore[arg-type]
        (Ended(reward=1.0, scores=None), "Outcome.info is None"),  # type: ignore[arg-type]
        (Ended(reward=1.0, truncated="no"), "Outcome.truncated is 'no'"),  # type: ignore[arg-type]
    ],
)
def test_results_that_are_none(result: Any, error: str) -> None:
    def agent(session: Session) -> Any:
        Client(session.url, session.key).ask([{"role": "user", "content": "Hi."}])
        return result

    [played] = play_agents(agent, ["Hi."])
    assert played.stop == StopReason.ERROR
    assert error in (played.error or "")


def test_an_agent_that_never_calls_has_no_step() -> None:
    [played] = play_agents(lambda session: 1.0, [])
    assert (played.stop, played.steps, played.error) == (StopReason.ERROR, (), "the agent ended without a call")


def test_a_hanging_agent_ends_alone_and_its_key_is_revoked() -> None:
    released, refused = threading.Event(), Future[str]()

    def agent(session: Session) -> float:
        client = Client(session.url, session.key)
        client.ask([{"role": "user", "content": "Hi."}])
        if session.task.payload["n"] == 0:
            released.wait(20)
            try:
                client.ask([{"role": "user", "content": "Me again."}])
            except ConnectionError as error:
                refused.set_result(str(error))
        else:
            for _ in range(6):
                time.sleep(0.1)
                client.ask([{"role": "user", "content": "Go on."}])
            released.set()
            refused.result(10)
        return 1.0

    hung, ended = play_agents(agent, lambda prompt: "Yes.", tasks=2, timeout=0.5, engine=SubmittingScript)
    assert (hung.stop, len(hung.steps)) == (StopReason.TIMEOUT, 1)
    assert hung.error == "the agent neither called the model nor ended within 0.5 seconds"
    assert (ended.stop, len(ended.steps)) == (StopReason.TERMINATED, 7)
    assert refused.result(10) == (
        "401: there is no session with this key, or its rollout has ended; the run gives each rollout a key of its own"
    )


def test_agents_that_have_ended_do_not_time_out_with_one_that_hangs() -> None:
    released = threading.Event()

    def agent(session: Session) -> float:
        client, number = Client(session.url, session.key), session.task.payload["n"]
        client.ask([{"role": "user", "content": "Hi."}])
        if number == 1:
            released.wait(20)
        elif number == 2:
            client.ask([{"role": "user", "content": "One call too many raises."}])
        return 1.0

    ended, hung, cut = play_agents(agent, lambda prompt: "Yes.", tasks=3, timeout=3, max_calls=1)
    released.set()
    assert (ended.stop, ended.scores["success"], ended.steps[0].reward) == (StopReason.TERMINATED, 1.0, 1.0)
    assert hung.stop == StopReason.TIMEOUT
    assert (cut.stop, cut.scores["success"]) == (StopReason.TRUNCATED, 0.0)
    assert cut.error == "the rollout has made its 1 calls, agent.max_calls, and ends here"


def test_an_agent_may_take_longer_than_poll_can_count() -> None:
    [played] = play_agents(lambda session: use_tool(session), ["One.", "Two."], timeout=1e7)
    assert played.stop == StopReason.TERMINATED


def test_a_session_that_never_ends_is_truncated() -> None:
    def agent(session: Session) -> None:
        client = Client(session.url, session.key)
        while True:
            client.ask([{"role": "user", "content": "More."}])

    [played] = play_agents(agent, lambda prompt: "Yes.", max_calls=3)
    assert (played.stop, len(played.steps), played.scores["success"]) == (StopReason.TRUNCATED, 3, 0.0)
    assert played.error == "the rollout has made its 3 calls, agent.max_calls, and ends here"


def test_a_prompt_that_is_too_long_truncates_its_rollout_alone() -> None:
    refused = Future[dict[str, Any]]()

    def agent(session: Session) -> float:
        client = Client(session.url, session.key)
        if session.task.payload["n"] == 0:
            body = {"model": "policy", "messages": [{"role": "user", "content": "word " * 2000}]}
            _, _, text = client.send(json.dumps(body).encode())
            refused.set_result(json.loads(text)["error"])
        else:
            client.ask([{"role": "user", "content": "Hi."}])
        return 1.0

    bomb, other = play_agents(
        agent, lambda prompt: "Yes.", tasks=2, engine=lambda answer: ScriptedEngine(answer, context=500)
    )
    assert (bomb.stop, bomb.steps) == (StopReason.TRUNCATED, ())
    assert other.stop == StopReason.TERMINATED
    assert refused.result(5)["code"] == "context_length_exceeded"


def test_a_prompt_that_is_too_long_is_refused_before_other_agents_have_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "HEARTBEAT_SECONDS", 1.0)
    statuses, refused = Future[list[int]](), threading.Event()

    def agent(session: Session) -> float:
        client = Client(session.url, session.key)
        if session.task.payload["n"] == 0:
            long, short = (
                json.dumps({"model": "policy", "messages": [{"role": "user", "content": text}]}).encode()
                for text in ("word " * 2000, "Hi.")
            )
            statuses.set_result([client.send(long)[0], client.send(long, x_stainless_retry_count="1")[0]])
            refused.set()
            client.send(short)
        else:
            refused.wait(3)
            client.ask([{"role": "user", "content": "Hi."}])
        return 1.0

    bomb, other = play_agents(
        agent, lambda prompt: "Yes.", tasks=2, engine=lambda answer: ScriptedEngine(answer, context=500)
    )
    assert (bomb.stop, bomb.steps, other.stop) == (StopReason.TRUNCATED, (), StopReason.TERMINATED)
    assert statuses.result(5) == [400, 400]


@pytest.mark.parametrize("levels", [101, 900, 950])
def test_arguments_and_results_that_are_nested_too_deep_stay_text(levels: int) -> None:
    deep = '{"a":' * levels + "1" + "}" * levels

    def agent(session: Session) -> float:
        client, messages = Client(session.url, session.key), [{"role": "user", "content": "Find a mug."}]
        reply = client.ask(messages, tools=TOOLS)
        call = {"id": "1", "type": "function", "function": {"name": "find", "arguments": deep}}
        told = {"role": "assistant", "content": "", "tool_calls": [call]}
        client.ask([*messages, reply, told, {"role": "tool", "tool_call_id": "1", "content": deep}], tools=TOOLS)
        return 1.0

    response = f'<tool_call>\n{{"name": "find", "arguments": {deep}}}\n</tool_call>'
    [played] = play_agents(agent, [response, "Yes."], state=ExchangeStateRule(), max_tokens=20_000)
    assert played.error is None
    seen = json.loads(played.steps[1].observation or "")["messages"]
    assert seen[0]["tool_calls"][0]["function"]["arguments"] == deep


def test_parallel_calls_of_one_rollout_are_answered_one_after_another() -> None:
    def agent(session: Session) -> float:
        said = [Future[str]() for _ in range(4)]

        def ask(number: int) -> None:
            reply = Client(session.url, session.key).ask([{"role": "user", "content": f"Number {number}"}])
            said[number].set_result(reply["content"])

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        assert [future.result(10) for future in said] == [f"echo {number}" for number in range(4)]
        return 1.0

    [played] = play_agents(agent, lambda prompt: f"echo {prompt.rpartition('Number ')[2][0]}")
    assert len(played.steps) == 4
    assert played.stop == StopReason.TERMINATED


def test_an_agent_may_end_while_one_of_its_calls_waits() -> None:
    def agent(session: Session) -> float:
        client = Client(session.url, session.key)
        client.ask([{"role": "user", "content": "Hi."}])
        thread = threading.Thread(target=client.ask, args=([{"role": "user", "content": "Unheard."}],), daemon=True)
        thread.start()
        time.sleep(0.2)  # the call is there
        return 1.0

    class Slow(ScriptedEngine):
        def generate(self, requests: Sequence[Request]) -> list[Generation]:
            time.sleep(0.4)
            return super().generate(requests)

    [played] = play_agents(agent, lambda prompt: "Yes.", engine=Slow)
    assert (len(played.steps), played.stop, played.steps[-1].reward) == (2, StopReason.TERMINATED, 1.0)


@pytest.mark.parametrize("when", ["waiting", "answered"])
def test_a_client_that_asks_again_makes_no_second_step(when: str) -> None:
    body = json.dumps({"model": "policy", "messages": [{"role": "user", "content": "Hi."}]}).encode()

    def agent(session: Session) -> float:
        first, second = Client(session.url, session.key), Client(session.url, session.key)
        texts = list[str]()
        thread = threading.Thread(target=lambda: texts.append(first.send(body)[2]))
        thread.start()
        if when == "answered":
            thread.join()
        time.sleep(0.1)
        texts.append(second.send(body, x_stainless_retry_count="1")[2])
        thread.join()
        assert texts[0] == texts[1]
        return 1.0

    class Slow(ScriptedEngine):
        def generate(self, requests: Sequence[Request]) -> list[Generation]:
            time.sleep(0.5)
            return super().generate(requests)

    [played] = play_agents(agent, lambda prompt: "Yes.", engine=Slow)
    assert (len(played.steps), played.stop) == (1, StopReason.TERMINATED)


def test_the_same_question_again_without_a_retry_is_a_second_step() -> None:
    def agent(session: Session) -> float:
        client = Client(session.url, session.key)
        for _ in range(2):
            client.ask([{"role": "user", "content": "Hi."}])
        return 1.0

    [played] = play_agents(agent, ["One.", "Two."])
    assert [json.loads(step.action or "")["content"] for step in played.steps] == ["One.", "Two."]


def test_malformed_calls_are_answered_as_content() -> None:
    broken = '<tool_call>\n{"name": "find"\n</tool_call>'

    def agent(session: Session) -> float:
        reply = Client(session.url, session.key).ask([{"role": "user", "content": "Hi."}], tools=TOOLS)
        assert reply == {"role": "assistant", "content": broken}
        return 0.0

    [played] = play_agents(agent, [broken])
    assert (played.steps[0].well_formed, played.stop) == (False, StopReason.TERMINATED)


def test_stop_texts_cut_the_message_and_not_the_ids() -> None:
    def agent(session: Session) -> float:
        client, messages = Client(session.url, session.key), [{"role": "user", "content": "Count."}]
        reply = client.ask(messages, stop=["three"])
        assert reply["content"] == "one two "
        client.ask([*messages, reply, {"role": "user", "content": "Go on."}], stop=["three"])
        return 1.0

    [played] = play_agents(agent, ["one two three four", "five"])
    assert played.error is None
    assert "three four" in text_of(played.steps[1].prompt_ids)


def test_rewards_and_refusals_of_actions_belong_to_the_step_before() -> None:
    def agent(session: Session) -> float:
        client = Client(session.url, session.key)
        client.ask([{"role": "user", "content": "1"}])
        session.reward(0.5)
        session.accepted(False)
        client.ask([{"role": "user", "content": "2"}])
        return 1.0

    [played] = play_agents(agent, lambda prompt: "Yes.")
    assert [(step.reward, step.accepted) for step in played.steps] == [(0.5, False), (1.0, True)]


def test_values_that_no_record_can_hold_are_errors_of_the_agent() -> None:
    session: Any = Session(number=0, task=None, url="", post=lambda *_: None)  # type: ignore[arg-type]
    with pytest.raises(EnvironmentFault, match=r"session\.reward: found nan"):
        session.reward(float("nan"))
    with pytest.raises(EnvironmentFault):
        session.state(object())


def test_rollouts_of_one_task_may_start_differently() -> None:
    clock = iter(range(100))

    def agent(session: Session) -> float:
        Client(session.url, session.key).ask([{"role": "user", "content": f"It is {next(clock)} o'clock."}])
        return 1.0

    played = play_agents(agent, lambda prompt: "Yes.", rollouts=3)
    assert [trajectory.stop for trajectory in played] == [StopReason.TERMINATED] * 3


class SubmittingScript(ScriptedEngine):
    """Answers each request by itself, as servers do."""

    def submit(self, requests: Sequence[Request]) -> list[Future[Generation]]:
        futures = [Future[Generation]() for _ in requests]
        for request, future in zip(requests, futures, strict=True):
            future.set_result(self.generate([request])[0])
        return futures


def test_many_sessions_with_crashing_and_hanging_agents_lose_nothing() -> None:
    calls, lock = list[tuple[int, int]](), threading.Lock()

    def agent(session: Session) -> float:
        client, number = Client(session.url, session.key), session.number
        for call in range(5):
            client.ask([{"role": "user", "content": f"{number} {call}"}])
            with lock:
                calls.append((number, call))
            if call == 2 and number % 16 == 3:
                raise OSError("crashed")
            if call == 2 and number % 16 == 7:
                time.sleep(9)
        return 1.0

    played = play_agents(agent, lambda prompt: "Yes.", tasks=8, rollouts=4, engine=SubmittingScript, timeout=8)
    ends = {number: trajectory.stop for number, trajectory in enumerate(played)}
    assert {n for n, stop in ends.items() if stop == StopReason.ERROR} == {3, 19}
    assert {n for n, stop in ends.items() if stop == StopReason.TIMEOUT} == {7, 23}
    recorded = [(n, call) for n, trajectory in enumerate(played) for call in range(len(trajectory.steps))]
    assert sorted(calls) == recorded
    for number, trajectory in enumerate(played):
        asked = [json.loads(step.observation or "")["messages"][-1]["content"] for step in trajectory.steps]
        assert asked == [f"{number} {call}" for call in range(len(asked))]
