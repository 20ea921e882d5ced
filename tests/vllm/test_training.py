"""Whole runs through real vLLM servers: that they learn, that they repeat, that they go on, and that one may die."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from safetensors.torch import load_file

from groupwise.cli.warmup import warmup
from groupwise.engines.engine import Generation, Request
from groupwise.engines.model_source import ModelSource
from groupwise.engines.replica import Replica
from groupwise.engines.server_processes import ServerProcess
from groupwise.models.folder import load_model
from groupwise.store.journal import Journal
from groupwise.training.collect.pending import read_pending
from groupwise.training.config.run_config import RunConfig
from groupwise.training.config.run_file import decode_run, read_run_file
from groupwise.training.evaluation.summary import Evaluation
from groupwise.training.loop import train
from groupwise.training.observer import RunObserver
from groupwise.training.open_run import open_run
from tests.measured_numbers import Numbers
from tests.vllm.environment import MAX_GAP, start

RUN_FILE = Path(__file__).with_name("household.toml")
SHORT = ("training.updates=4", "training.checkpoint_every=1", "evaluation.tasks=0", "algorithm.loss.old=learner")
"""A run that is compared with another one, and not evaluated."""


@pytest.fixture(scope="module")
def beginning(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The one warm start that every run here begins with."""
    folder = tmp_path_factory.mktemp("start") / "model"
    warmup(RUN_FILE, out=folder, set_=["evaluation.tasks=0"])
    return folder


@pytest.fixture(scope="module")
def servers(beginning: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ServerProcess]]:
    """Two servers, of which the second does not live to the end."""
    place = tmp_path_factory.mktemp("servers")
    model = load_model(str(beginning), dtype=torch.float32)
    processes = start(
        ModelSource(model=model, tokenizer=None, path=str(beginning), folder=place), replicas=2, context=None
    )
    yield processes
    for process in processes:
        process.stop()


def make_config(beginning: Path, servers: Sequence[ServerProcess], *overrides: str) -> RunConfig:
    """The run, from the warm start, through servers."""
    tables = read_run_file(RUN_FILE).content
    del tables["warm_start"]
    tables["model"] = {"kind": "pretrained", "path": str(beginning)}
    tables["engine"] = {"kind": "vllm", "urls": [server.url for server in servers]}
    return decode_run(tables, overrides=list(overrides))


def play(config: RunConfig, folder: Path, *, resume: bool = False, observers: Sequence[RunObserver] = ()) -> None:
    with open_run(config, folder) as run:
        train(run, resume=resume, observers=observers)


def read_updates(folder: Path) -> dict[int, dict[tuple[str, int], list[dict[str, Any]]]]:
    """The steps of each rollout, by update, task and rollout."""
    with Journal(folder / "journal.sqlite", read_only=True) as journal:
        return {
            number: {(row["task"], row["rollout"]): row["steps"] for row in journal.trajectories(number)}
            for number in journal.update_numbers()
        }


def read_weights(folder: Path, number: int) -> dict[str, Any]:
    return load_file(folder / "checkpoints" / f"{number:04d}" / "model.safetensors")


def compare_runs(some: Path, other: Path) -> tuple[list[str], float]:
    """Every rollout whose tokens differ, by name, and the largest distance of log-probs where they are equal."""
    differing, gap, num_compared = list[str](), 0.0, 0
    first, second = read_updates(some), read_updates(other)
    assert first.keys() == second.keys()
    for number, rollouts in first.items():
        assert rollouts.keys() == second[number].keys()
        for key, steps in rollouts.items():
            for index, (a, b) in enumerate(zip(steps, second[number][key], strict=False)):
                if a["response_ids"] != b["response_ids"]:
                    differing.append(f"update {number}, task {key[0]}, rollout {key[1]}, step {index}")
                    break
                pairs = zip(a["logp_behaviour"], b["logp_behaviour"], strict=True)
                gap = max([gap, *(abs(x - y) for x, y in pairs)])
                num_compared += len(a["response_ids"])
            else:
                if len(steps) != len(second[number][key]):
                    differing.append(f"update {number}, task {key[0]}, rollout {key[1]}: another number of steps")
    assert num_compared > 5000, "too few tokens to tell"
    return differing, gap


def weights_are_equal(some: Path, other: Path, number: int) -> bool:
    a, b = read_weights(some, number), read_weights(other, number)
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


class CountingObserver(RunObserver):
    """Keeps the evaluations of a run."""

    def __init__(self) -> None:
        self.evaluations: list[Evaluation] = []

    def on_evaluation(self, evaluation: Evaluation) -> None:
        self.evaluations.append(evaluation)


class Interrupting(RunObserver):
    """Ends a run as the user would, when an update is being learnt."""

    def __init__(self, number: int) -> None:
        self._number = number

    def on_stage(self, name: str, number: int) -> None:
        if (name, number) == ("learn", self._number):
            raise KeyboardInterrupt


def test_a_run_through_a_server_learns(
    beginning: Path, servers: list[ServerProcess], tmp_path: Path, numbers: Numbers
) -> None:
    counting = CountingObserver()
    play(make_config(beginning, servers[:1]), tmp_path / "run", observers=[counting])
    before, after = counting.evaluations[0], counting.evaluations[-1]
    numbers.measured["household: success before, 95 % interval, tasks"] = describe(before)
    numbers.measured["household: success after 12 updates of 8 x 8 rollouts, 95 % interval, tasks"] = describe(after)
    assert after.success > before.interval[1]


def describe(evaluation: Evaluation) -> list[float]:
    return [round(evaluation.success, 3), *(round(end, 3) for end in evaluation.interval), evaluation.tasks]


@pytest.fixture(scope="module")
def overlapped(beginning: Path, servers: list[ServerProcess], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with lag 1 that nothing disturbed."""
    folder = tmp_path_factory.mktemp("overlapped") / "run"
    play(make_config(beginning, servers[:1], *SHORT, "rollout.lag=1"), folder)
    return folder


def test_lag_1_repeats_its_ids_and_weights(
    beginning: Path, servers: list[ServerProcess], overlapped: Path, tmp_path: Path, numbers: Numbers
) -> None:
    play(make_config(beginning, servers[:1], *SHORT, "rollout.lag=1"), tmp_path / "again")
    differing, gap = compare_runs(overlapped, tmp_path / "again")
    numbers.measured["lag 1 twice: responses whose ids differ"] = differing
    numbers.measured["lag 1 twice: largest distance of recorded log-probs"] = gap
    assert differing == []
    assert gap <= MAX_GAP
    for number in range(1, 5):
        assert weights_are_equal(overlapped, tmp_path / "again", number)


def test_resuming_replays_pending_rollouts_to_the_bit(
    beginning: Path, servers: list[ServerProcess], overlapped: Path, tmp_path: Path, numbers: Numbers
) -> None:
    config = make_config(beginning, servers[:1], *SHORT, "rollout.lag=1")
    with pytest.raises(KeyboardInterrupt):
        play(config, tmp_path / "cut", observers=[Interrupting(3)])
    with Journal(tmp_path / "cut" / "journal.sqlite", read_only=True) as journal:
        assert journal.last_number() == 2
        [pending] = journal.read_pending(2).values()
    asked = count_asked(lambda: play(config, tmp_path / "cut", resume=True))
    replayed = read_updates(tmp_path / "cut")[3]
    recorded = {(t.task.id, t.rollout): t.steps for t in read_pending(pending).chosen}
    assert replayed.keys() == recorded.keys()
    for key, steps in recorded.items():
        for step, row in zip(steps, replayed[key], strict=True):
            assert list(step.response_ids) == list(row["response_ids"])
            assert list(step.logp_behaviour) == list(row["logp_behaviour"])
    differing, gap = compare_runs(overlapped, tmp_path / "cut")
    numbers.measured["lag 1, stopped and resumed: responses whose ids differ"] = differing
    numbers.measured["lag 1, stopped and resumed: largest distance of recorded log-probs"] = gap
    numbers.measured["lag 1, stopped and resumed: requests after resuming, of one update only"] = asked
    assert differing == []
    assert weights_are_equal(overlapped, tmp_path / "cut", 4)


def count_asked(work: Any) -> int:
    """How many requests servers were sent while something was done."""
    asked, lock, generate = [0], threading.Lock(), Replica.generate

    def count(self: Replica, request: Request) -> Generation:
        with lock:
            asked[0] += 1
        return generate(self, request)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Replica, "generate", count)
        work()
    return asked[0]


def test_one_of_two_replicas_is_killed_and_the_run_ends_as_if_it_were_not(
    beginning: Path, servers: list[ServerProcess], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, numbers: Numbers
) -> None:
    config = make_config(beginning, servers, *SHORT, "training.updates=3")
    play(config, tmp_path / "undisturbed")
    generate, answered = Replica.generate, [0]

    def answer_and_kill(self: Replica, request: Request) -> Generation:
        if self.number == 1 and self.version == 1:  # in the middle of the second update
            answered[0] += 1
            if answered[0] == 40:
                os.killpg(servers[1].pid, signal.SIGKILL)
        return generate(self, request)

    monkeypatch.setattr(Replica, "generate", answer_and_kill)
    play(config, tmp_path / "killed")
    assert answered[0] >= 40
    assert not servers[1].is_running()
    with Journal(tmp_path / "killed" / "journal.sqlite", read_only=True) as journal:
        alive, again = dict(journal.curve("replicas/alive")), dict(journal.curve("replicas/sent_again"))
    assert (alive[1], alive[3]) == (2.0, 1.0)
    assert again[2] > 0
    differing, gap = compare_runs(tmp_path / "undisturbed", tmp_path / "killed")
    numbers.measured["one of two killed: requests sent again"] = again[2]
    numbers.measured["one of two killed: responses whose ids differ"] = differing
    numbers.measured["one of two killed: largest distance of recorded log-probs"] = gap
    assert differing == []
    assert weights_are_equal(tmp_path / "undisturbed", tmp_path / "killed", 3)
