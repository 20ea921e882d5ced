"""Environments in worker processes: one that raises, hangs or dies costs itself, and nothing else changes."""

from __future__ import annotations

import gc
import importlib
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from groupwise import ConfigError, StopReason
from groupwise.envs import Observation
from groupwise.rollout.environment_runner import Fault
from groupwise.rollout.worker_pool import Workers
from groupwise.system.errors import EnvironmentFault
from tests.unit.rollout.troublesome import Forgetful, Homesick, Troublesome, task
from tests.unit.rollout.worker_processes import has_ended, is_gone, kill

TIMEOUT = 0.5
ROOT = Path(__file__).parents[3]


def start(num: int = 1, timeout: float = TIMEOUT) -> Workers:
    return Workers(Troublesome(), num=num, timeout=timeout)


@pytest.fixture(scope="module")
def one() -> Iterator[Workers]:
    with start() as host:
        yield host


@pytest.fixture(scope="module")
def two() -> Iterator[Workers]:
    with start(2) as host:
        yield host


def texts(answers: dict[int, Any]) -> dict[int, str]:
    return {number: answer.observation.text for number, answer in answers.items()}


FAULTS = [
    ("raise", "error", "RuntimeError: the roof fell in"),
    ("exit", "error", "SystemExit: the roof fell in"),
    ("interrupt", "error", "KeyboardInterrupt: the roof fell in"),
    ("mumble", "error", "Unspeakable: its message cannot be shown"),
    ("return a dict", "error", "EnvironmentFault: act gave dict; return an Outcome"),
    (
        "give a homebody",
        "error",
        "EnvironmentFault: Observation.state_key is a Homebody; give text, a finite number, True, False, None, or a "
        "tuple of these",
    ),
    ("die 3", "error", "task {id!r}: Troublesome, step 1: the worker ended with status 3"),
    ("kill SIGSEGV", "error", "task {id!r}: Troublesome, step 1: the worker was killed by SIGSEGV"),
    (
        "hang",
        "timeout",
        "task {id!r}: Troublesome, step 1: no answer within 0.5 seconds; raise rollout.env_timeout if it is only slow",
    ),
]


@pytest.mark.few(4)
@pytest.mark.parametrize(("action", "reason", "message"), FAULTS)
def test_a_fault_costs_one_environment_and_the_others_go_on(
    one: Workers, action: str, reason: str, message: str
) -> None:
    one.open({number: task(str(number)) for number in range(4)})
    assert texts(one.act(dict.fromkeys(range(4), "walk"))) == dict.fromkeys(range(4), "walked 1")
    # 0 acts before the fault, 2 after it, 3 not at all in this call.
    outcomes = one.act({0: "walk", 1: action, 2: "walk"})
    assert outcomes.pop(1) == Fault(reason=StopReason(reason), message=message.format(id=task("1").id))
    assert texts(outcomes) == {0: "walked 2", 2: "walked 2"}
    with pytest.raises(KeyError):
        one.act({1: "walk"})
    assert texts(one.act({0: "walk", 2: "walk", 3: "walk"})) == {0: "walked 3", 2: "walked 3", 3: "walked 2"}


def test_faults_while_opening_are_told(two: Workers) -> None:
    troubled = {number: task(str(number), now=now) for number, now in enumerate(["raise", "hang", "die 4"])}
    outcomes = two.open({**troubled, 3: task("3"), 4: task("4")})
    assert outcomes[3] == outcomes[4] == Observation(text="walked 0", state_key=0)
    assert [outcomes[number].message for number in troubled] == [  # type: ignore[union-attr]
        "RuntimeError: the roof fell in",
        f"task {troubled[1].id!r}: Troublesome, opening: no answer within 0.5 seconds; raise rollout.env_timeout if it "
        "is only slow",
        f"task {troubled[2].id!r}: Troublesome, opening: the worker ended with status 4",
    ]
    assert texts(two.act({3: "walk", 4: "walk"})) == {3: "walked 1", 4: "walked 1"}


AGAIN = {
    "raise": "it failed when its actions were repeated in a new worker: RuntimeError: the roof fell in",
    "die 5": "Troublesome, opening, repeated in a new worker: the worker ended with status 5",
    "elsewhere": "the same actions led elsewhere in a new worker; open the environment from the task alone, without "
    "global random numbers, clocks or files",
}


@pytest.mark.few(1)
@pytest.mark.parametrize("are_called", [True, False])
def test_environments_that_cannot_be_brought_back_are_faults_too(
    one: Workers, tmp_path: Path, are_called: bool
) -> None:
    tasks = {n: task(str(n), again=again, visits=str(tmp_path / str(n))) for n, again in enumerate(AGAIN)}
    one.open({**tasks, 8: task("8"), 9: task("9")})
    one.act(dict.fromkeys([*tasks, 8, 9], "walk"))
    outcomes = one.act({**(dict.fromkeys(tasks, "walk") if are_called else {}), 8: "die 1", 9: "walk"})
    assert isinstance(outcomes.pop(8), Fault)
    assert texts({9: outcomes.pop(9)}) == {9: "walked 2"}
    # Those that were not called in that round say so when they are.
    assert (outcomes or one.act(dict.fromkeys(tasks, "walk"))) == {
        n: Fault(reason=StopReason.ERROR, message=f"task {tasks[n].id!r}: {message}")
        for n, message in enumerate(AGAIN.values())
    }
    assert texts(one.act({9: "walk"})) == {9: "walked 3"}


def test_a_worker_that_is_killed_between_calls_costs_nobody(one: Workers) -> None:
    one.open({0: task("0"), 1: task("1")})
    one.act({0: "walk", 1: "walk"})
    kill(one.pids[0])
    assert texts(one.act({0: "walk"})) == {0: "walked 2"}
    one.close([0])
    kill(one.pids[0])
    one.close([1])
    assert one.open({0: task("0")}) == {0: Observation(text="walked 0", state_key=0)}


def test_load_is_dealt_out_evenly(two: Workers) -> None:
    two.close(range(9))
    two.open({number: task(str(number)) for number in range(5)})
    homes = texts(two.act(dict.fromkeys(range(5), "pid")))
    assert sorted(Counter(homes.values()).values()) == [2, 3]
    assert set(homes.values()) == set(map(str, two.pids))
    lonely = homes[0]
    two.close([number for number, home in homes.items() if home == lonely])
    two.open({number: task(str(number)) for number in (10, 11)})
    assert set(texts(two.act({10: "pid", 11: "pid"})).values()) == {lonely}
    two.close([*range(5), 10, 11])


def test_workers_work_at_the_same_time_and_the_time_out_is_for_each_call(two: Workers) -> None:
    two.open({number: task(str(number)) for number in range(6)})
    naps = [tuple(map(float, text.split())) for text in texts(two.act(dict.fromkeys(range(6), "nap 0.2"))).values()]
    halves = [naps[0::2], naps[1::2]]  # dealt out by turns
    begins = [min(begin for begin, _ in half) for half in halves]
    ends = [max(end for _, end in half) for half in halves]
    assert [end - begin > TIMEOUT for begin, end in zip(begins, ends, strict=True)] == [True, True]
    assert max(begins) < min(ends)


def test_a_number_can_be_opened_anew(two: Workers) -> None:
    two.open({0: task("0")})
    two.act({0: "walk"})
    assert two.open({0: task("other")}) == {0: Observation(text="walked 0", state_key=0)}
    assert texts(two.act({0: "walk"})) == {0: "walked 1"}


def test_workers_keep_open_environments_only() -> None:
    with start() as host:
        host.open({number: task(str(number)) for number in range(5)})
        assert texts(host.act({4: "census"})) == {4: "5"}
        host.close([0])
        host.open({1: task("other")})
        host.act({2: "raise", 3: "give a lambda"})
        assert texts(host.act({4: "census"})) == {4: "2"}


def test_workers_do_not_load_torch_though_the_parent_has(one: Workers) -> None:
    pytest.importorskip("torch")
    one.open({0: task()})
    assert texts(one.act({0: "modules torch"})) == {0: "False"}
    assert texts(one.act({0: "modules groupwise"})) == {0: "True"}


def test_what_an_environment_started_ends_with_it() -> None:
    with start() as host:
        host.open({0: task()})
        launched = int(texts(host.act({0: "launch"}))[0])
        assert Path(f"/proc/{launched}").exists()
        assert host.act({0: "hang"})[0].reason is StopReason.TIMEOUT  # type: ignore[union-attr]
        assert has_ended(launched)


def test_shutdown_leaves_no_process_and_refuses_further_use() -> None:
    host = start(2)
    pids = host.pids
    host.open({0: task()})
    host.shutdown()
    host.shutdown()
    assert [is_gone(pid) for pid in pids] == [True, True]
    with pytest.raises(EnvironmentFault) as caught:
        host.open({0: task()})
    assert str(caught.value) == "Troublesome: its workers were shut down; open a new host"


def test_a_host_that_is_thrown_away_leaves_no_process() -> None:
    host = start()
    [pid] = host.pids
    del host
    gc.collect()
    assert is_gone(pid)


PARENT = """
import os, sys
from groupwise.rollout.worker_pool import Workers
from tests.unit.rollout.troublesome import Troublesome, task

host = Workers(Troublesome(), num=2, timeout=60.0)
pids = host.pids
if os.fork() == 0:
    sys.exit()  # a fork that ends must not end the workers
os.wait()
host.open({0: task("0"), 1: task("1")})
assert host.pids == pids
print(*pids, flush=True)
host.act({0: "hang"})
"""


def test_workers_end_when_their_parent_is_killed_even_from_a_hung_environment() -> None:
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    command = [sys.executable, "-c", PARENT]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": path}) as parent:
        assert parent.stdout is not None
        pids = [int(word) for word in parent.stdout.readline().split()]
        time.sleep(0.2)
        running = [Path(f"/proc/{pid}").exists() for pid in pids]
        parent.kill()
    assert running == [True, True]
    assert [has_ended(pid) for pid in pids] == [True, True]


@pytest.mark.parametrize(
    ("away", "start_timeout", "message"),
    [
        ("exit", 60.0, "SystemExit: the roof fell in"),
        ("die 7", 60.0, "the worker ended with status 7"),
        ("hang", 0.3, "no sign of life within 0.3 seconds"),
    ],
)
def test_a_worker_that_cannot_start_says_why_at_once(away: str, start_timeout: float, message: str) -> None:
    with pytest.raises(EnvironmentFault) as caught:
        Workers(Homesick(home=os.getpid(), away=away), num=1, timeout=1.0, start_timeout=start_timeout)
    assert str(caught.value) == f"Homesick: a worker cannot start: {message}"


def test_a_worker_that_cannot_start_again_costs_its_environments_until_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    source = tmp_path / "passing_env.py"
    text = "from tests.unit.rollout.troublesome import Troublesome\n\n\nclass Passing(Troublesome):\n    pass\n"
    source.write_text(text)
    with Workers(importlib.import_module("passing_env").Passing(), num=1, timeout=TIMEOUT) as host:
        host.open({0: task("0"), 1: task("1")})
        source.unlink()
        outcomes = host.act({0: "die 1", 1: "walk"})
        assert outcomes[1] == Fault(
            reason=StopReason.ERROR,
            message=f"task {task('1').id!r}: a worker cannot start: ConfigError: cannot load the env "
            "'passing_env:Passing': No module named 'passing_env'; check that the package is installed",
        )
        source.write_text(text)
        assert host.open({0: task("0")}) == {0: Observation(text="walked 0", state_key=0)}


def test_what_no_run_file_can_say_is_refused() -> None:
    class Local(Troublesome):
        pass

    def refusal(env: Any, **options: Any) -> str:
        with pytest.raises(ConfigError) as caught:
            Workers(env, **{"num": 1, "timeout": 1.0, **options})
        return str(caught.value)

    assert refusal(object()) == (
        "object is not a Part, so workers cannot be told about it; derive it with slot='env', or set "
        "rollout.workers = 0"
    )
    assert "cannot load the env 'tests.unit.rollout.test_workers:test_what_no_run_file" in refusal(Local())
    assert refusal(Forgetful(walk=None)) == (
        "Forgetful made from its own config is another; workers need fields that a run file can say, or set "
        "rollout.workers = 0"
    )
    main = type("Main", (Troublesome,), {"__module__": "__main__"})
    assert refusal(main()) == (
        "Main stands in the main script, which workers do not run; move it to a module, or set rollout.workers = 0"
    )


def test_a_group_with_three_bad_environments_completes_with_the_fourth(one: Workers) -> None:
    pytest.importorskip("torch")
    from groupwise.engines.engine import Request
    from groupwise.engines.scripted import ScriptedEngine
    from groupwise.models.tiny import make_word_tokenizer
    from groupwise.rollout import Full, WholeResponse
    from groupwise.rollout.episodes import Player, Rollout
    from groupwise.rollout.prompts import Prompter, PromptTemplate

    tokenizer = make_word_tokenizer((*Troublesome().vocabulary(), *"0123456789", ">"))
    prompter = Prompter(tokenizer, template=PromptTemplate(), history=Full(), instruction="")
    lines = {"0": ["walk", "raise"], "1": ["walk", "hang"], "2": ["walk", "die"], "3": ["walk", "walk", "end"]}

    def answer(request: Request) -> list[int]:
        rollout = (request.session or "").rpartition("/")[2]
        return [*prompter.encode(lines[rollout].pop(0)), prompter.frame.end_id]

    [group] = Troublesome().task_set("train")
    player = Player(
        engine=ScriptedEngine(answer, version=1),
        host=one,
        prompter=prompter,
        action_parser=WholeResponse(),
        max_tokens=4,
    )
    rollouts = [Rollout(task=group, number=number, seed=number) for number in range(4)]
    trajectories = player.play(rollouts, temperature=1.0)
    assert [(trajectory.stop.value, len(trajectory.steps)) for trajectory in trajectories] == [
        ("error", 2),
        ("timeout", 2),
        ("error", 2),
        ("terminated", 3),
    ]
    assert [trajectory.error for trajectory in trajectories] == [
        "RuntimeError: the roof fell in",
        f"task {group.id!r}: Troublesome, step 1: no answer within 0.5 seconds; raise rollout.env_timeout if it is "
        "only slow",
        f"task {group.id!r}: Troublesome, step 1: the worker ended with status 1",
        None,
    ]
    assert trajectories[3].scores == {"return": 2.0, "success": 1.0}
