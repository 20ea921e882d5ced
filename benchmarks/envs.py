"""Steps a second of environments from packages: the stock game against ours, and many at once in 0, 1, 2 and 4 workers.

    ALFWORLD_DATA=... python -m benchmarks.envs [--seconds 3] [--write benchmarks/results/envs.json]

Random admissible actions, each attempt to its end or for 50 steps. Opening counts: a stock game is loaded and reset for
each attempt, as its makers' loop does, where ours keeps games that were read; the steps alone are given beside. An
environment whose package or games are missing is left out, and the result says so. With many at once, a round is one
action in each, and one that ends is opened anew; steps a second count the wall time of rounds, opening included. Other
work on the machine slows what the wall clock measures, and not the processor time of a step (of this process: a Java
machine's is not in it).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from random import Random
from typing import Any

from groupwise.core.errors import ConfigError
from groupwise.envs import Alfworld, Scienceworld, Textworld, TextworldExpress
from groupwise.envs.alfworld_games import FILE, games_folder, open_game
from groupwise.rollout.hosts import open_host

NUM_STEPS = 50
WORKERS = (0, 1, 2, 4)
INSTANCES = (8, 32, 128)
MOST_TASKS = 24
"""Tasks played, so that made games are few."""

Step = Callable[[str], tuple[tuple[str, ...], bool]]
"""Sends an action; what is possible then, and whether the attempt has ended."""


def rates(attempts: Iterator[tuple[float, tuple[str, ...], Step]], seconds: float) -> dict[str, Any]:
    """Play attempts for some seconds, each with the seconds that opening took."""
    draw, steps, stepping, opening, opened, used = Random(0), 0, 0.0, 0.0, 0, 0.0
    while stepping + opening < seconds:
        took, listed, step = next(attempts)
        opening, opened = opening + took, opened + 1
        ended, begin, used_before = False, time.perf_counter(), time.process_time()
        for _ in range(NUM_STEPS):
            if not ended:
                listed, ended = step(draw.choice(listed or ("look around",)))
                steps += 1
        stepping, used = stepping + time.perf_counter() - begin, used + time.process_time() - used_before
    return {
        "steps": steps,
        "steps_per_second": round(steps / (stepping + opening), 1),
        "steps_per_second_without_opening": round(steps / stepping, 1),
        "core_milliseconds_per_step": round(used / steps * 1e3, 3),
        "open_milliseconds": round(opening / opened * 1e3, 1),
    }


def ours(part: Any) -> Iterator[tuple[float, tuple[str, ...], Step]]:
    tasks = part.panel("train")[:MOST_TASKS]
    for task in tasks:
        part.open(task)  # a game that has to be made first is made now
    while True:
        for task in tasks:
            begin = time.perf_counter()
            environment = part.open(task)
            took = time.perf_counter() - begin

            def step(action: str, environment: Any = environment) -> tuple[tuple[str, ...], bool]:
                outcome = environment.act(action)
                return outcome.observation.admissible, outcome.ended

            yield took, environment.observe().admissible, step


def first_open(part: Alfworld) -> float:
    """Milliseconds to open a game that was not opened before."""
    tasks = part.panel("train")[:MOST_TASKS]
    open_game.cache_clear()
    begin = time.perf_counter()
    for task in tasks:
        part.open(task)
    return round((time.perf_counter() - begin) / len(tasks) * 1e3, 1)


def stock_alfworld(part: Alfworld) -> Iterator[tuple[float, tuple[str, ...], Step]]:
    """TextWorld with ALFWorld's wrappers, as `AlfredTWEnv` starts its games."""
    import textworld
    from alfworld.agents.environment.alfred_tw_env import AlfredDemangler, AlfredInfos

    wanted = textworld.EnvInfos(won=True, admissible_commands=True, extras=["gamefile"])
    for task in part.panel("train"):
        begin = time.perf_counter()
        file = games_folder(part.path) / str(task.payload["game"]) / FILE
        game = textworld.start(str(file), wanted, wrappers=[AlfredDemangler(shuffle=False), AlfredInfos])
        state = game.reset()
        took = time.perf_counter() - begin

        def step(action: str, game: Any = game) -> tuple[tuple[str, ...], bool]:
            state, _, ended = game.step(action)
            return tuple(state["admissible_commands"]), ended

        yield took, tuple(state["admissible_commands"]), step


def many(part: Any, *, workers: int, instances: int, seconds: float) -> dict[str, Any]:
    """Rounds of one action in each of many environments."""
    tasks, draw, num_opened, steps = part.panel("train")[:MOST_TASKS], Random(0), instances, 0
    with open_host(part, workers=workers, timeout=60.0) as host:
        shown: dict[int, Any] = dict(host.open({number: tasks[number % len(tasks)] for number in range(instances)}))
        listed = {number: seen.admissible for number, seen in shown.items()}
        begin = time.perf_counter()
        while time.perf_counter() - begin < seconds:
            outcomes: dict[int, Any] = dict(host.act({n: draw.choice(each) for n, each in listed.items()}))
            steps += len(outcomes)
            listed = {number: outcome.observation.admissible for number, outcome in outcomes.items()}
            ended = [number for number, outcome in outcomes.items() if outcome.ended]
            host.close(ended)
            fresh = {number: tasks[(num_opened + place) % len(tasks)] for place, number in enumerate(ended)}
            num_opened += len(ended)
            reopened: dict[int, Any] = dict(host.open(fresh)) if fresh else {}
            listed |= {number: seen.admissible for number, seen in reopened.items()}
        took = time.perf_counter() - begin
    return {"workers": workers, "instances": instances, "steps_per_second": round(steps / took)}


def measured(name: str, measure: Callable[[], Any]) -> Any:
    """What was measured, or why nothing was."""
    print(name, flush=True)
    try:
        return measure()
    except (ConfigError, ImportError) as error:
        return {"left_out": str(error)}


def versions() -> dict[str, str]:
    found = {}
    for package in ("alfworld", "textworld", "textworld-express", "scienceworld"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--seconds", type=float, default=3.0, help="time of each measurement; the stock game gets 10 times"
    )
    parser.add_argument("--write", type=Path, help="write the result as JSON")
    options = parser.parse_args()
    seconds, alfworld = options.seconds, Alfworld(max_steps=NUM_STEPS)
    textworlds = {
        "coin_collector": Textworld(level=5, num_train=4, max_steps=NUM_STEPS),
        "treasure_hunter": Textworld(game="treasure_hunter", level=5, num_train=4, max_steps=NUM_STEPS),
        "cooking": Textworld(game="cooking", num_train=4, max_steps=NUM_STEPS),
    }
    on_java = {
        "textworld_express, coin": TextworldExpress(num_train=4, max_steps=NUM_STEPS),
        "textworld_express, cookingworld": TextworldExpress(game="cookingworld", num_train=4, max_steps=NUM_STEPS),
        "scienceworld": Scienceworld(max_steps=20),
        "scienceworld, without the list": Scienceworld(list_actions=False, max_steps=20),
    }
    hosts = [(workers, instances) for workers in WORKERS for instances in INSTANCES]
    result: dict[str, Any] = {
        "command": f"python -m benchmarks.envs --seconds {seconds:g}",
        "machine": f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores, Python {platform.python_version()}",
        "packages": versions(),
        "load_average_before": round(os.getloadavg()[0], 1),
        "alfworld": {
            "stock": measured("alfworld, stock", lambda: rates(stock_alfworld(alfworld), 10 * seconds)),
            "ours": measured("alfworld, ours", lambda: rates(ours(alfworld), seconds)),
            "ours_first_open_milliseconds": measured("alfworld, first opening", lambda: first_open(alfworld)),
            "many": measured(
                "alfworld, many at once",
                lambda: [many(alfworld, workers=w, instances=i, seconds=seconds) for w, i in hosts],
            ),
        },
        "textworld": {
            name: measured(f"textworld, {name}", lambda part=part: rates(ours(part), seconds))  # type: ignore[misc]
            for name, part in textworlds.items()
        },
        "on_java": {
            name: measured(name, lambda part=part: rates(ours(part), seconds))  # type: ignore[misc]
            for name, part in on_java.items()
        },
    }
    print(json.dumps(result, indent=2))
    if options.write:
        options.write.parent.mkdir(parents=True, exist_ok=True)
        options.write.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
