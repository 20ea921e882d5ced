"""Record rollouts of ALFWorld's text games with a noisy expert, as a groupwise rollouts file.

ALFWorld (Shridhar et al. 2021, arXiv:2010.03768) has a walkthrough for every game. The policy follows it, but some
steps are mistakes. Their probability grows from a task's first rollout to its last. A mistake is to look around, a
command that the game does not understand, or any possible command. Then the policy repairs the mistake if it can, and
continues. In a few tasks the policy also has a gap: it does not know one command of the walkthrough, in all rollouts.

All randomness depends on (run seed, task, rollout), so the same command writes the same bytes.

Needs ``pip install alfworld`` and the games (``alfworld-download``), in an environment of their own:

    ALFWORLD_DATA=... python examples/record_alfworld.py --out examples/alfworld_rollouts.jsonl
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from random import Random
from typing import Any

import textworld
from alfworld.agents.environment.alfred_tw_env import AlfredDemangler, AlfredInfos

TASK_TYPES = (
    "look_at_obj_in_light",
    "pick_and_place_simple",
    "pick_clean_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_two_obj_and_place",
)
SUCCESS_REWARD = 10.0
# Fractions of the mistakes; the rest are any admissible command.
LOOK_SHARE = 0.15
REFUSED_SHARE = 0.10
PLACE = re.compile(r"(?:^open|^close| from| to| with) ([a-z]+ \d+)$")


class NoisyExpert:
    """Follow a walkthrough, make a mistake with probability `noise`, repair it and continue.

    The commands that remain form a queue. If a mistake changed something, its opposite goes to the front: put back
    what was taken, take back what was put down, close what was opened. If a command is not possible here, the expert
    first goes to the command's place. If it is not possible there either, it is dropped. If the queue is empty, the
    expert wanders. Some mistakes are never repaired.
    """

    def __init__(self, walkthrough: Sequence[str], *, noise: float, rng: Random) -> None:
        self._queue = deque(walkthrough)
        self._walkthrough = tuple(walkthrough)
        self._noise = noise
        self._rng = rng
        self._place = ""

    def act(self, admissible: Sequence[str]) -> str:
        """Return the next command, given those the game would accept, in a fixed order."""
        if self._rng.random() < self._noise:
            return self._mistake(admissible)
        return self._next_planned(admissible)

    def _mistake(self, admissible: Sequence[str]) -> str:
        kind = self._rng.random()
        if kind < LOOK_SHARE:
            return self._rng.choice(("look", "inventory"))
        if kind < LOOK_SHARE + REFUSED_SHARE:
            return self._draw_refused(admissible)
        command = self._rng.choice(admissible)
        if self._queue and command == self._queue[0]:
            self._queue.popleft()
        elif (remedy := opposite(command)) is not None:
            self._queue.appendleft(remedy)
        return command

    def _draw_refused(self, admissible: Sequence[str]) -> str:
        """A walkthrough command at the wrong moment, or one whose object lost its number."""
        untimely = [command for command in self._walkthrough if command not in admissible]
        return self._rng.choice(untimely or [re.sub(r" \d+$", "", self._walkthrough[0])])

    def _next_planned(self, admissible: Sequence[str]) -> str:
        while self._queue:
            command = self._queue[0]
            if command in admissible:
                if command.startswith("go to "):
                    self._place = command.removeprefix("go to ")
                return self._queue.popleft()
            match = PLACE.search(command)
            place = match.group(1) if match else self._place
            for detour in (f"go to {place}", f"open {place}"):
                if detour in admissible and not command.startswith("go to "):
                    return detour
            self._queue.popleft()
        return self._rng.choice(admissible)


def opposite(command: str) -> str | None:
    """The command that undoes this one, or None where nothing needs to be, or can be, undone.

    >>> opposite("take mug 1 from shelf 2")
    'move mug 1 to shelf 2'
    """
    if match := re.fullmatch(r"take (.+) from (.+)", command):
        return f"move {match[1]} to {match[2]}"
    if match := re.fullmatch(r"move (.+) to (.+)", command):
        return f"take {match[1]} from {match[2]}"
    if match := re.fullmatch(r"(open|close) (.+)", command):
        return f"{'close' if match[1] == 'open' else 'open'} {match[2]}"
    return None


@dataclass(frozen=True)
class Task:
    """One game, its solution, and the command of the solution that the policy does not know, if any."""

    id: str
    game: Path
    walkthrough: tuple[str, ...]
    gap: str | None


def choose_tasks(root: Path, *, num_tasks: int, gap_share: float, seed: int) -> list[Task]:
    """Draw tasks evenly over the six task types; a task is a game folder, played in its first trial."""
    share, rest = divmod(num_tasks, len(TASK_TYPES))
    if rest:
        raise ValueError(f"--tasks: got {num_tasks}; give a multiple of {len(TASK_TYPES)}, the task types")
    folders = sorted(path.name for path in root.glob("*") if path.is_dir())
    tasks: list[Task] = []
    for task_type in TASK_TYPES:
        names = [name for name in folders if name.startswith(f"{task_type}-")]
        if len(names) < share:
            raise ValueError(f"{task_type}: found {len(names)} tasks, not {share}; check --data and --split")
        for name in sorted(Random(f"{seed}/{task_type}").sample(names, share)):
            game = min((root / name).glob("*/game.tw-pddl"))
            walkthrough = tuple(json.loads(game.read_text(encoding="utf-8"))["walkthrough"])
            gap = draw_gap(walkthrough, share=gap_share, rng=Random(f"{seed}/{name}"))
            tasks.append(Task(name, game, walkthrough, gap))
    return tasks


def draw_gap(walkthrough: Sequence[str], *, share: float, rng: Random) -> str | None:
    """With probability `share`, one command that the expert has no way around: not a move, not a door."""
    needed = [command for command in walkthrough if command.split()[0] not in ("go", "open", "close")]
    return rng.choice(needed) if rng.random() < share else None


def open_game(path: Path) -> Any:
    """Start the stock text game, with the object names of the official environment."""
    wanted = textworld.EnvInfos(won=True, admissible_commands=True)
    return textworld.start(str(path), wanted, wrappers=[AlfredDemangler(shuffle=False), AlfredInfos])


def play(game: Any, policy: NoisyExpert, *, step_limit: int) -> list[dict[str, Any]]:
    """Run one rollout; each row has the text before the action, the action, and its reward."""
    rows: list[dict[str, Any]] = []
    view = game.reset()
    while not view["won"] and len(rows) < step_limit:
        # "help" prints the game's manual. The published methods do not offer it to agents.
        admissible = sorted(set(view["admissible_commands"]) - {"help"})
        action, state = policy.act(admissible), view["feedback"]
        view, _, _ = game.step(action)
        reward = SUCCESS_REWARD if view["won"] else 0.0
        rows.append({"state": state, "action": action, "reward": reward, "accepted": action in admissible})
    for row in rows:
        row["outcome"] = rows[-1]["reward"]
    rows[-1]["stop"] = "terminated" if view["won"] else "truncated"
    return rows


def record(task: Task, options: argparse.Namespace) -> list[dict[str, Any]]:
    """The rows of all rollouts at one task, in order."""
    known = [command for command in task.walkthrough if command != task.gap]
    spread = (options.noise_high - options.noise_low) / max(1, options.rollouts - 1)
    rows: list[dict[str, Any]] = []
    game = open_game(task.game)
    for rollout in range(options.rollouts):
        rng = Random(f"{options.seed}/{task.id}/{rollout}")
        policy = NoisyExpert(known, noise=options.noise_low + spread * rollout, rng=rng)
        steps = play(game, policy, step_limit=options.step_limit)
        identity = {"task": task.id, "rollout": rollout}
        rows += [{**identity, "index": index, **step} for index, step in enumerate(steps)]
    game.close()
    return rows


def header(tasks: Sequence[Task], goals: Sequence[str], options: argparse.Namespace) -> dict[str, Any]:
    """The first line of the file: what made it, and each task's goal."""
    settings = {name: value for name, value in vars(options).items() if name not in ("data", "out")}
    flags = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in settings.items())
    about = {
        task.id: {"trial": task.game.parent.name, "task_text": goal, "gap": task.gap}
        for task, goal in zip(tasks, goals, strict=True)
    }
    meta = {
        "env": f"alfworld {version('alfworld')}, textworld {version('textworld')}",
        "source": "ALFWorld games (MIT), Shridhar et al. 2021, arXiv:2010.03768",
        "split": options.split,
        "policy": "noisy expert: the walkthrough with mistakes, less the gap where a task has one",
        "seed": options.seed,
        "command": f"python examples/record_alfworld.py {flags}",
        "tasks": about,
    }
    return {"format": "groupwise.rollouts", "version": 2, "meta": meta}


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Record ALFWorld rollouts of a noisy expert.")
    parser.add_argument("--data", type=Path, default=os.environ.get("ALFWORLD_DATA"), help="holds json_2.1.1")
    parser.add_argument("--out", type=Path, default=Path("alfworld_rollouts.jsonl"), help="file to write")
    parser.add_argument("--split", default="valid_seen", help="valid_seen, valid_unseen or train")
    parser.add_argument("--tasks", type=int, default=12, help="number of tasks, a multiple of six")
    parser.add_argument("--rollouts", type=int, default=8, help="rollouts at each task")
    parser.add_argument("--step-limit", type=int, default=30, help="steps before a rollout is cut off")
    parser.add_argument("--noise-low", type=float, default=0.2, help="mistakes a step in the first rollout")
    parser.add_argument("--noise-high", type=float, default=0.8, help="mistakes a step in the last rollout")
    parser.add_argument("--gap-share", type=float, default=0.2, help="share of tasks with an unknown command")
    parser.add_argument("--seed", type=int, default=0, help="run seed")
    options = parser.parse_args()
    if options.data is None:
        parser.error("--data: not given, and ALFWORLD_DATA is not set; name the folder that holds json_2.1.1")
    return options


def main() -> None:
    options = parse_options()
    root = options.data / "json_2.1.1" / options.split
    tasks = choose_tasks(root, num_tasks=options.tasks, gap_share=options.gap_share, seed=options.seed)
    goals: list[str] = []
    rows: list[dict[str, Any]] = []
    for task in tasks:
        steps = record(task, options)
        rows += steps
        goals.append(steps[0]["state"].rpartition("Your task is to: ")[2])
        wins = sum(row.get("stop") == "terminated" for row in steps)
        print(f"{task.id}: {wins} of {options.rollouts} solved, {len(steps)} steps", file=sys.stderr)
    lines = [header(tasks, goals, options), *rows]
    text = "".join(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n" for line in lines)
    options.out.write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
