"""The episode loop with an engine that answers as requests come: nobody waits for the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from groupwise import StopReason, Task, Trajectory
from groupwise.data.step_columns import make_rows
from groupwise.engines.engine import Generation, Request, VersionSpan, check_generations
from groupwise.envs import Identity
from groupwise.models.tiny import make_word_tokenizer
from groupwise.report.derived_credit import make_step_table
from groupwise.rollout import Full, WholeResponse
from groupwise.rollout.environment_runner import EnvTiming, InProcess, open_host
from groupwise.rollout.episodes import Player, Rollout
from groupwise.rollout.prompts import Prompter, PromptTemplate
from groupwise.store.journal import Journal, Update
from groupwise.system.errors import EngineFault
from tests.unit.rollout.answering import Answering, Gambling, by_lot
from tests.unit.rollout.dawdling import Dawdling
from tests.unit.rollout.scripted_episodes import Breaking

ENV = Identity(num_words=4, length=3)
TASKS = ENV.task_set("train")[:4]
TOKENIZER = make_word_tokenizer((*ENV.vocabulary(), "goal", ":", ">", "."))
PROMPTER = Prompter(TOKENIZER, template=PromptTemplate(), history=Full(), instruction="")
GAMBLING = Gambling(
    [token for word in ENV.vocabulary() for token in PROMPTER.encode(word)],
    PROMPTER.frame.end_id,
)


class Watched(InProcess):
    """Remembers which environments were closed."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.closed: list[int] = []

    def close(self, numbers: Sequence[int]) -> None:
        self.closed += numbers
        super().close(numbers)


def play(
    engine: Any, tasks: Sequence[Task] = TASKS, *, host: Any = None, waiting: EnvTiming | None = None
) -> list[Trajectory]:
    player = Player(
        engine=engine,
        host=host or InProcess(ENV),
        prompter=PROMPTER,
        action_parser=WholeResponse(),
        max_tokens=3,
    )
    rollouts = [Rollout(task=task, number=0, seed=place) for place, task in enumerate(tasks)]
    return player.play(rollouts, temperature=1.0, waiting=waiting)


def play_as_answered(choose: Callable[[Sequence[Request]], int | None], **how: Any) -> list[Trajectory]:
    engine = Answering(GAMBLING, choose)
    try:
        return play(engine, **how)
    finally:
        engine.close()


def test_an_rollout_ends_while_another_waits_for_its_first_answer() -> None:
    """The first rollout is answered once the others are over; in step with it they would wait for ever."""

    def last(waiting: Sequence[Request]) -> int | None:
        others = [place for place, request in enumerate(waiting) if request.session != "0"]
        are_over = len(engine.submitted) >= 3 * 3 + 1
        return others[0] if others else 0 if are_over else None

    engine = Answering(GAMBLING, last)
    trajectories = play(engine)
    engine.close()
    assert trajectories == play(GAMBLING)
    assert [len(trajectory.steps) for trajectory in trajectories] == [3, 3, 3, 3]
    order = [request.session for request in engine.submitted]
    assert order[-2:] == ["0", "0"], "its second and third steps come when the others are over"


def test_a_fault_of_an_environment_costs_its_own_rollout_only() -> None:
    Breaking.opened = 0
    host = Watched(Breaking())
    tasks = Identity(num_words=4, length=2).task_set("train")[:1] * 3
    trajectories = play_as_answered(by_lot(1), tasks=tasks, host=host)
    assert [trajectory.stop for trajectory in trajectories] == [
        StopReason.TERMINATED,
        StopReason.ERROR,
        StopReason.TERMINATED,
    ]
    assert trajectories[1].error == "RuntimeError: the roof fell in"
    assert sorted(host.closed) == [0, 1, 2]


def test_all_environments_are_closed_and_their_steps_are_counted() -> None:
    host, waiting = Watched(ENV), EnvTiming()
    trajectories = play_as_answered(by_lot(2), host=host, waiting=waiting)
    assert sorted(host.closed) == [0, 1, 2, 3]
    assert waiting.steps == sum(len(trajectory.steps) for trajectory in trajectories) == 12
    assert waiting.seconds > 0


def test_rollouts_that_outgrow_the_model_are_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Gambling, "context", 18)
    host = Watched(ENV)
    trajectories = play_as_answered(by_lot(3), host=host)
    assert trajectories == play(GAMBLING)
    assert {trajectory.stop for trajectory in trajectories} >= {StopReason.TRUNCATED}
    assert sorted(host.closed) == [0, 1, 2, 3]


def test_environments_in_workers_are_played_the_same() -> None:
    with open_host(ENV, workers=2, timeout=30.0) as host:
        assert play_as_answered(by_lot(4), host=host) == play(GAMBLING)


def test_an_environment_that_takes_its_time_holds_up_nobody_elses_rollout() -> None:
    """Rollouts 1 and 3 run in the other worker; 2 shares the slow one's."""
    engine, waiting = Answering(GAMBLING, by_lot(6)), EnvTiming()
    with open_host(Dawdling(num_words=4, length=3, slow=TASKS[0].id), workers=2, timeout=30.0) as host:
        trajectories = play(engine, host=host, waiting=waiting)
    engine.close()
    assert trajectories == play(GAMBLING)
    order = [request.session for request in engine.submitted]
    steps = {session: [place for place, other in enumerate(order) if other == session] for session in set(order)}
    assert max(steps["1"] + steps["3"]) < steps["0"][1], "they are over before it has made its first step"
    assert (waiting.steps, waiting.seconds > 0.9) == (12, True)


class Failing:
    """Answers nothing but one request, and that with an error."""

    gives, version, context = GAMBLING.gives, 4, None

    def __init__(self) -> None:
        self.futures: list[Future[Generation]] = []

    def submit(self, requests: Sequence[Request]) -> list[Future[Generation]]:
        self.futures = [Future() for _ in requests]
        self.futures[1].set_exception(EngineFault("the server is gone; start it again"))
        return self.futures


def test_an_engine_that_fails_stops_the_run_and_nobody_waits_for_the_rest() -> None:
    engine = Failing()
    with pytest.raises(EngineFault, match="the server is gone"):
        play(engine)
    assert [future.cancelled() for future in engine.futures] == [True, False, True, True]


class Forgetful(Gambling):
    """Leaves out the last request."""

    def generate(self, requests: Sequence[Request]) -> list[Generation]:
        return super().generate(requests[:-1])


def test_answers_that_are_missing_are_noticed_either_way() -> None:
    said = "was given 4 requests and returned 3; `groupwise check engine` with the run file says which rules"
    forgetful = Forgetful(GAMBLING._words, GAMBLING._stop)
    with pytest.raises(EngineFault) as caught:
        play(forgetful)
    assert str(caught.value).startswith(f"the engine Forgetful: generate {said}")
    engine = Answering(GAMBLING, by_lot(5))
    whole = engine.submit
    engine.submit = lambda requests: whole(requests)[:-1]  # type: ignore[method-assign]
    with pytest.raises(EngineFault) as caught:
        play(engine)
    engine.close()
    assert str(caught.value).startswith(f"the engine Answering: submit {said}")


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        (None, "the engine Forgetful: generate gave nothing for 4 requests, but a list is needed; `groupwise check"),
        (["door"] * 4, "the engine Forgetful answered a request with a str, but a Generation is needed; `groupwise"),
    ],
)
def test_answers_of_another_kind_name_the_engine(answers: Any, said: str) -> None:
    engine = Forgetful(GAMBLING._words, GAMBLING._stop)
    engine.generate = lambda requests: answers  # type: ignore[method-assign]
    with pytest.raises(EngineFault) as caught:
        play(engine)
    assert str(caught.value).startswith(said)


def test_futures_of_another_kind_name_the_engine() -> None:
    def hold(number: int) -> Future[Any]:
        future: Future[Any] = Future()
        if number == 1:
            future.set_exception(KeyError("logprobs"))
        else:
            future.set_result({"text": "door"})
        return future

    for submit, said in (
        (lambda requests: None, ": submit gave nothing for 4 requests, but a list is needed; `groupwise check engine`"),
        (GAMBLING.generate, ": submit gave a Generation among its futures, but a concurrent.futures.Future for each"),
        (lambda requests: [hold(0) for _ in requests], " answered a request with a dict of 1, but a Generation is"),
        (lambda requests: [hold(1) for _ in requests], ": a future raised KeyError: 'logprobs' ("),
    ):
        engine = Failing()
        engine.submit = submit  # type: ignore[assignment,method-assign]
        with pytest.raises(EngineFault) as caught:
            play(engine)
        assert str(caught.value).startswith(f"the engine Failing{said}")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"logp": (-0.5,)},
            "a response of 2 tokens has 1 log-probs and 0 entropies; the engine must give one log-prob per token, "
            "and one entropy per token or none",
        ),
        (
            {"entropy": (0.5,)},
            "a response of 2 tokens has 2 log-probs and 1 entropies; the engine must give one log-prob per token, "
            "and one entropy per token or none",
        ),
        (
            {"versions": (VersionSpan(1, 1), VersionSpan(2, 2))},
            "the versions of a response of 2 tokens are [(1, 1), (2, 2)]; the engine must give (version, tokens) spans "
            "with 2 tokens in total",
        ),
    ],
)
def test_a_response_whose_columns_do_not_fit_together_is_refused(fields: Mapping[str, Any], message: str) -> None:
    whole = Generation(response_ids=(5, 6), logp=(-0.5, -0.25), entropy=(), stopped=False, versions=())
    with pytest.raises(EngineFault) as caught:
        check_generations([replace(whole, **fields)])
    assert str(caught.value) == message


def test_which_weights_sampled_which_tokens_is_kept_and_read_back(tmp_path: Path) -> None:
    trajectories = play(GAMBLING)
    mixed = [trajectory for trajectory in trajectories if trajectory.versions == (3, 4)]
    assert len(mixed) > 1
    for trajectory in mixed:
        for step, row in zip(trajectory.steps, make_rows(trajectory), strict=True):
            said = [version for version, tokens in step.versions for _ in range(tokens)]
            assert len(said) == len(step.response_ids)
            assert row.get("versions", (row.get("version"),) * len(said)) == tuple(said)
    assert {("version" in row, "versions" in row) for t in mixed for row in make_rows(t)} == {
        (True, False),
        (False, True),
    }
    with Journal(tmp_path / "journal.sqlite") as journal:
        credit = [(0.0,) * len(trajectory.steps) for trajectory in trajectories]
        update = {"number": 5, "version": 5, "metrics": {}, "faults": (), "replayed": ()}
        journal.write(Update(trajectories=trajectories, credit=credit, **update))
        for trajectory in trajectories:
            past = journal.past_rollouts.find(trajectory.task.id, number=5, rollout=0)
            again = journal.past_rollouts.read(past)
            assert past.version == min(trajectory.versions)
            assert again.versions == trajectory.versions
            assert [step.versions for step in again.steps] == [step.versions for step in trajectory.steps]


def test_an_rollout_is_as_old_as_its_oldest_token_when_it_is_derived_again() -> None:
    trajectories = play(GAMBLING)
    rows = [row for trajectory in trajectories for row in make_rows(trajectory)]
    expected = [5 - min(trajectory.versions) for trajectory in trajectories for _ in trajectory.steps]
    table = make_step_table(rows, version=5)
    assert table.column("age")[table.step_of_row].tolist() == expected
