"""Steps per second of every environment: its original package and ours, and many at once with 0, 1, 2 and 4 workers.

    ALFWORLD_DATA=... GSM8K_DATA=... python -m benchmarks.envs [--seconds 2] [--only NAME]
                                                               [--write benchmarks/results/envs.json]

Actions are random among the listed ones; if none are listed, the expert acts. Each rollout runs to its end, or for 50
steps. Opening counts: an original game is created or reset per rollout, as in its own loop, while ours reuses games
that were read. The steps alone are reported too. Gymnasium, gym-sokoban, textarena and GEM list no actions, and listing
them can cost more than the game. So some of ours are also measured without the list. Java games become faster over
time, so both sides run for a while before the clock starts. If a package, data or games are missing, the environment is
left out, and the result says why. With many at once, a round is one action in each, and steps per second use the wall
time of rounds, including opening. Other work on the machine affects wall time, but not the processor time of a step,
which covers this process only: not a Java machine, and not a server.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from random import Random
from typing import Any

from benchmarks import stock_games as stock
from benchmarks.result_file import write_result
from benchmarks.stock_games import Rollouts
from groupwise.envs import Alfworld, Scienceworld, Textworld, TextworldExpress
from groupwise.envs.alfworld.environment import open_game
from groupwise.parts.part import Slot
from groupwise.rollout.environment_runner import Fault, open_host
from groupwise.system.errors import ConfigError
from groupwise.training.config.run_file import read_run_file

EXAMPLES = Path(__file__).parents[1] / "examples"
NUM_STEPS = 50
WORKERS, INSTANCES = (0, 1, 2, 4), (8, 32, 128)
FEW_WORKERS, FEW_INSTANCES = (0, 1, 2), (8, 16)
WARM_UP = 2
"""Rounds before the clock starts: what is built at the first action is built once."""
MAX_TASKS = 24
"""Tasks played, so that made games are few."""
OURS = ("gridworld", "boxes", "countdown", "lookup", "identity")
"""Small environments of our own, by their run files."""
PACKAGES = (
    *("alfworld", "textworld", "textworld-express", "scienceworld", "gymnasium", "minigrid", "gym-sokoban"),
    *("textarena", "gem-llm", "bfcl-eval", "bm25s", "openenv-core", "reasoning-gym"),
)


@dataclass(frozen=True)
class Subject:
    """An environment to measure."""

    part: Any
    stock: Callable[[], Rollouts] | None = None
    """Its makers' own, where there is one."""
    is_heavy: bool = False
    """Whether few run at once: each worker starts a Java machine, or an opening takes long."""
    is_java: bool = False
    """Whether it runs on Java, and so becomes faster as it runs."""
    times: int = 1
    """How many times as long each side is measured, where a second has few steps."""
    actions: tuple[str, ...] = ()
    """What to choose from where nothing is listed; empty = what the expert does."""


def example(name: str, **fields: Any) -> Any:
    """The environment of a run file in `examples`."""
    section = read_run_file(EXAMPLES / f"{name}.toml").content["env"]
    return Slot("env").fill({**section, **fields})


def hide_actions(part: Any) -> Any:
    """The same without a list of actions."""
    return part.model_copy(update={"actions": ()})


def subjects() -> dict[str, Callable[[], Subject]]:
    """Every environment by the name that results have."""
    alfworld = Alfworld(max_steps=NUM_STEPS)
    babyai, sokoban = example("babyai", num_train=50), example("sokoban", num_train=50)
    lake, arena, gem = example("frozen_lake"), example("textarena_frozen_lake"), example("gem_minesweeper")
    bfcl = example("bfcl", max_steps=NUM_STEPS)
    return {
        "household": lambda: Subject(example("household")),
        "alfworld": lambda: Subject(alfworld, lambda: stock.alfworld(alfworld)),
        "storefront": lambda: Subject(example("storefront")),
        "webshop": lambda: Subject(example("webshop")),
        "search_qa": lambda: Subject(example("search_qa")),
        "bfcl": lambda: Subject(bfcl, lambda: stock.bfcl(tasks_of(bfcl), choose_actions(Subject(bfcl)))),
        "babyai": lambda: Subject(babyai, lambda: stock.babyai(babyai.level)),
        "sokoban": lambda: Subject(sokoban, lambda: stock.sokoban(sokoban.size, sokoban.num_boxes)),
        "gymnasium, FrozenLake": lambda: Subject(lake, lambda: stock.gymnasium(lake.id, **lake.kwargs)),
        "textarena, FrozenLake": lambda: Subject(arena, lambda: stock.textarena(arena.id, arena.actions)),
        "gem, Minesweeper": lambda: Subject(gem, lambda: stock.gem(gem.id, gem.actions, **gem.kwargs)),
        "textarena, FrozenLake, without the list": lambda: Subject(hide_actions(arena), actions=arena.actions),
        "gem, Minesweeper, without the list": lambda: Subject(hide_actions(gem), actions=gem.actions),
        "textworld, coin_collector": lambda: _textworld(level=5),
        "textworld, treasure_hunter": lambda: _textworld(game="treasure_hunter", level=5),
        "textworld, cooking": lambda: _textworld(game="cooking"),
        "textworld_express, coin": lambda: _textworld_express("coin"),
        "textworld_express, cookingworld": lambda: _textworld_express("cookingworld"),
        "scienceworld": _scienceworld,
        **{name: lambda name=name: Subject(example(name)) for name in OURS},
        "reasoning_gym, chain_sum": lambda: Subject(example("reasoning_chain_sum")),
        "math, GSM8K": lambda: Subject(example("gsm8k", path=os.environ.get("GSM8K_DATA", "data/gsm8k"))),
    }


def _textworld(**fields: Any) -> Subject:
    part = Textworld(num_train=4, max_steps=NUM_STEPS, **fields)
    return Subject(part, lambda: stock.textworld(part, tasks_of(part)), is_heavy=True, times=4)


def _textworld_express(game: Any) -> Subject:
    part = TextworldExpress(game=game, num_train=4, max_steps=NUM_STEPS)
    return Subject(part, lambda: stock.textworld_express(part, tasks_of(part)), is_heavy=True, is_java=True, times=4)


def _scienceworld() -> Subject:
    part = Scienceworld(max_steps=20)
    return Subject(part, lambda: stock.scienceworld(part, tasks_of(part)), is_heavy=True, is_java=True, times=10)


def rates(rollouts: Rollouts, seconds: float) -> dict[str, Any]:
    """Run rollouts for some seconds; each has the seconds of opening."""
    draw, steps, stepping, opening, opened, used = Random(0), 0, 0.0, 0.0, 0, 0.0
    while stepping + opening < seconds:
        took, listed, step = next(rollouts)
        opening, opened = opening + took, opened + 1
        ended, begin, used_before = False, time.perf_counter(), time.process_time()
        for _ in range(NUM_STEPS):
            if not ended:
                listed, ended = step(draw.choice(listed))
                steps += 1
        stepping, used = stepping + time.perf_counter() - begin, used + time.process_time() - used_before
    return {
        "steps": steps,
        "steps_per_second": round(steps / (stepping + opening), 1),
        "steps_per_second_without_opening": round(steps / stepping, 1),
        "core_milliseconds_per_step": round(used / steps * 1e3, 3),
        "open_milliseconds": round(opening / opened * 1e3, 1),
    }


def warm_up(subject: Subject, rollouts: Rollouts, seconds: float) -> Rollouts:
    """Rollouts, after some warm-up rollouts if they make the next ones faster."""
    if subject.is_java:
        rates(rollouts, seconds)
    return rollouts


def tasks_of(part: Any) -> Any:
    return part.task_set("train")[:MAX_TASKS]


def choose_actions(subject: Subject) -> tuple[str, ...]:
    """Actions if an environment lists none: the given ones, or those of its expert."""
    actions = list(subject.actions)
    part = subject.part
    for task in tasks_of(part):  # a game that has to be made first is made now
        environment = part.open(task)
        for _ in range(NUM_STEPS):
            if subject.actions or environment.observe().admissible or not hasattr(environment, "expert"):
                break
            actions.append(environment.expert())
            if environment.act(actions[-1]).ended:
                break
    return tuple(actions) or ("look around",)


def ours(subject: Subject) -> Rollouts:
    others, part = choose_actions(subject), subject.part
    while True:
        for task in tasks_of(part):
            begin = time.perf_counter()
            environment = part.open(task)
            took = time.perf_counter() - begin

            def step(action: str, environment: Any = environment) -> tuple[tuple[str, ...], bool]:
                outcome = environment.act(action)
                return outcome.observation.admissible or others, outcome.ended

            yield took, environment.observe().admissible or others, step


def first_open(part: Alfworld) -> float:
    """Milliseconds to open a game that was not opened before."""
    tasks = tasks_of(part)
    open_game.cache_clear()
    begin = time.perf_counter()
    for task in tasks:
        part.open(task)
    return round((time.perf_counter() - begin) / len(tasks) * 1e3, 1)


def many(part: Any, others: tuple[str, ...], *, workers: int, instances: int, seconds: float) -> dict[str, Any]:
    """Rounds of one action in each of many environments."""
    tasks, draw, num_opened, steps, rounds, begin = tasks_of(part), Random(0), instances, 0, 0, 0.0
    with open_host(part, workers=workers, timeout=60.0) as host:
        shown: dict[int, Any] = dict(host.open({number: tasks[number % len(tasks)] for number in range(instances)}))
        faults = [seen.message for seen in shown.values() if isinstance(seen, Fault)]
        if faults:
            return {"workers": workers, "instances": instances, "left_out": f"{len(faults)} did not open: {faults[0]}"}
        listed = {number: seen.admissible or others for number, seen in shown.items()}
        while rounds <= WARM_UP or time.perf_counter() - begin < seconds:
            if rounds == WARM_UP:
                begin, steps = time.perf_counter(), 0
            rounds += 1
            outcomes: dict[int, Any] = dict(host.act({n: draw.choice(each) for n, each in listed.items()}))
            steps += len(outcomes)
            listed = {number: outcome.observation.admissible or others for number, outcome in outcomes.items()}
            ended = [number for number, outcome in outcomes.items() if outcome.ended]
            host.close(ended)
            fresh = {number: tasks[(num_opened + place) % len(tasks)] for place, number in enumerate(ended)}
            num_opened += len(ended)
            reopened: dict[int, Any] = dict(host.open(fresh)) if fresh else {}
            listed |= {number: seen.admissible or others for number, seen in reopened.items()}
        took = time.perf_counter() - begin
    return {"workers": workers, "instances": instances, "steps_per_second": round(steps / took)}


def growth(subject: Subject, seconds: float) -> list[dict[str, Any]]:
    """Many at once, by workers and instances."""
    others = choose_actions(subject)
    workers, instances = (FEW_WORKERS, FEW_INSTANCES) if subject.is_heavy else (WORKERS, INSTANCES)
    return [many(subject.part, others, workers=w, instances=i, seconds=seconds) for w in workers for i in instances]


def measure_or_explain(name: str, measure: Callable[[], Any]) -> Any:
    """The measurement, or the reason why there is none."""
    print(name, flush=True)
    try:
        return measure()
    except (ConfigError, ImportError) as error:
        return {"left_out": str(error)}


def open_subject(make: Callable[[], Subject]) -> Subject | None:
    """A subject, or None if its package or data are missing."""
    try:
        subject = make()
        tasks_of(subject.part)
    except (ConfigError, ImportError):
        return None
    return subject


def measure_subject(name: str, make: Callable[[], Subject], seconds: float) -> dict[str, Any]:
    try:
        subject = make()
    except ConfigError as error:
        return {"left_out": str(error)}
    single = subject.times * seconds
    results = {
        "ours": measure_or_explain(f"{name}, ours", lambda: rates(warm_up(subject, ours(subject), single), single))
    }
    if "left_out" in results["ours"]:
        return dict(results["ours"])
    if isinstance(subject.part, Alfworld):
        results["ours_first_open_milliseconds"] = first_open(subject.part)
    if (begin := subject.stock) is not None:
        if isinstance(subject.part, Alfworld):
            single = 10 * seconds  # a single opening takes it seconds
        results["stock"] = measure_or_explain(
            f"{name}, stock", lambda: rates(warm_up(subject, begin(), single), single)
        )
    return results | {"many": measure_or_explain(f"{name}, many at once", lambda: growth(subject, seconds / 2))}


def openenv(seconds: float) -> dict[str, Any]:
    """OpenEnv's client and a server on this machine: the cost of the round trip."""
    try:
        from tests.unit.envs.openenv_servers import server

        up: AbstractContextManager[Any] = server(sessions=40)
        import openenv.core  # noqa: F401  # the server needs it
    except ImportError as error:
        return {"left_out": str(error)}
    with up as running:
        part = running.part()
        subject = Subject(part, lambda: stock.openenv(part, tasks_of(part)), is_heavy=True)
        return measure_subject("openenv, corridor", lambda: subject, seconds)


def versions() -> Iterator[tuple[str, str]]:
    for package in PACKAGES:
        try:
            yield package, version(package)
        except PackageNotFoundError:
            yield package, "not installed"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0, help="time of each measurement; half where many run")
    parser.add_argument("--only", action="append", help="an environment by name; may repeat")
    parser.add_argument("--write", type=Path, help="write the result as JSON")
    options = parser.parse_args()
    chosen = {name: make for name, make in subjects().items() if not options.only or name in options.only}
    result: dict[str, Any] = {
        "command": f"python -m benchmarks.envs --seconds {options.seconds:g}",
        "machine": f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores, Python {platform.python_version()}",
        "packages": dict(versions()),
        "load_average_before": round(os.getloadavg()[0], 1),
        "environments": {},
    }
    for name, make in chosen.items():
        result["environments"][name] = measure_subject(name, make, options.seconds)
        write_result(result, options.write)  # a run that is cut short keeps what it measured
    if not options.only or "openenv" in options.only:
        result["environments"]["openenv, corridor"] = openenv(options.seconds)
    write_result(result, options.write)
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
