"""Hostile answers to everything that judges answers: none may run, reach out, or change what later answers score."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.faults.endings import ROOT, Ending
from benchmarks.faults.payloads import PAYLOADS, fill
from benchmarks.faults.section import Section
from groupwise.parts.part import Slot
from groupwise.rollout.environment_runner import Fault, call_guarded
from groupwise.system.errors import ConfigError
from groupwise.training.config.run_file import read_run_file

EXAMPLES = ("bfcl", "textarena_frozen_lake", "gem_minesweeper", "search_qa", "storefront", "countdown")
"""Run files of the other environments that read what a model says."""
WRONG = "-987654321"
"""An answer that is wrong, and honest."""
SETTLING_SECONDS = 0.3
"""For what an answer has started to show itself."""
MAX_SECONDS = 30.0
"""That an answer may take, with a verifier to be started anew."""
MIN_PAYLOADS = 32
SUBJECT_SECONDS = 45.0
SMALL = {"num_train": 1, "num_validation": 1, "num_test": 1, "verifier_seconds": 1.0}
Say = Callable[[str], list[str]]


def say_answer(payload: str) -> list[str]:
    """An answer between tags, as a question asks for it."""
    return [f"<answer>{payload}</answer>"]


def say_in_every_way(payload: str) -> list[str]:
    """An action as it is, and in all the forms that worlds read."""
    forms = ("{}", "<answer>{}</answer>", "<search>{}</search>", "search[{}]", "click[{}]", "[{}]", "\\boxed{{{}}}")
    return [form.format(payload) for form in forms]


class Answers(Section):
    """A case is a family of questions, or a world, that is given every payload."""

    name = "answers"
    count = 10_000
    case_seconds = 600.0

    def prepare(self) -> dict[str, Any]:
        self.subjects: list[tuple[str, dict[str, Any], Say]] = [
            *(
                (f"reasoning_gym {name}", {"kind": "reasoning_gym", "family": name, **SMALL}, say_answer)
                for name in categories()
            ),
            ("math", {"kind": "math", "path": str(self._problems()), "verifier_seconds": 1.0}, say_in_every_way),
        ]
        for name in EXAMPLES:
            content = read_run_file(ROOT / "examples" / f"{name}.toml").content
            self.subjects.append((content["env"]["kind"], content["env"], say_in_every_way))
        return {"payloads": len(PAYLOADS), "subjects": len(self.subjects)}

    def numbers(self) -> Sequence[int]:
        # The worlds first, so that a short campaign meets one of each kind.
        order = [*range(len(self.subjects))][::-1]
        return order[: max(self.count // len(PAYLOADS), 1)]

    def describe(self, case: int) -> str:
        return self.subjects[case][0]

    def play(self, case: int) -> Ending:
        name, config, say = self.subjects[case]
        ending = Ending(case=case, what=name, num=0)
        try:
            part: Any = Slot("env").fill(config)
            task = part.task_set("train")[0]
            part.open(task)
        except ConfigError as error:
            ending.ended = "not installed" if "that is not installed" in str(error) else "refused by name"
            ending.what += f": {error}"
            return ending
        folder = self.folder / f"case-{case}"
        folder.mkdir()
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.setblocking(False)
            try_payloads(ending, Subject(part, task, say), folder, listener, self.draws(case))
        return ending

    def _problems(self) -> Path:
        path = self.folder / "train.jsonl"
        rows = [{"problem": f"What is ${a}^2$?", "answer": str(a * a)} for a in range(3, 60)]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return path


def categories() -> list[str]:
    """Families of reasoning-gym; none where it is not installed. One of them needs others to be named."""
    try:
        from reasoning_gym.factory import DATASETS
    except ImportError:
        return []
    return sorted(set(DATASETS) - {"composite"})


class Subject:
    """A question, or a world, that answers are put to."""

    def __init__(self, part: Any, task: Any, say: Say) -> None:
        self.part, self.task, self.say = part, task, say

    def score(self, action: str) -> float | str:
        """What an action earns; a text where it was a fault of its rollout."""
        earned = call_guarded(lambda: float(self.part.open(self.task).act(action).reward))
        return earned.message if isinstance(earned, Fault) else earned

    def honest(self) -> list[float | str]:
        """What honest answers earn: wrong ones, and what the expert says."""
        return [*(self.score(action) for action in self.say(WRONG)), self._expert()]

    def _expert(self) -> float | str:
        def play() -> float:
            environment, earned = self.part.open(self.task), 0.0
            while hasattr(environment, "expert") and (action := environment.expert()) is not None:
                outcome = environment.act(action)
                earned += outcome.reward
                if outcome.ended:
                    break
            return float(earned)

        earned = call_guarded(play)
        return earned.message if isinstance(earned, Fault) else earned


def try_payloads(ending: Ending, subject: Subject, folder: Path, listener: socket.socket, draws: Random) -> None:
    """Put payloads to a subject in some order, and see what honest answers earn before and after.

    All of them, or as many as there is time for, where each costs a verifier.
    """
    until = time.monotonic() + SUBJECT_SECONDS
    before, port = subject.honest(), listener.getsockname()[1]
    could_win = any(isinstance(earned, float) and earned >= 1.0 for earned in before[:-1])
    for number in draws.sample(range(len(PAYLOADS)), len(PAYLOADS)):
        payload = PAYLOADS[number]
        if time.monotonic() > until and ending.num >= MIN_PAYLOADS:
            break
        ending.num += 1
        for action in subject.say(fill(payload, file=str(folder / f"ran-{number}"), port=port)):
            began = time.monotonic()
            earned = subject.score(action)
            if time.monotonic() - began > MAX_SECONDS:
                ending.fail("hangs", f"payload {number} took {time.monotonic() - began:.0f} s")
            if isinstance(earned, float) and earned >= 1.0 and not could_win:
                ending.fail("executed_answers", f"payload {number} earns {earned:g}: {payload[:80]}")
        if _was_called(listener):
            ending.fail("executed_answers", f"payload {number} called out: {payload[:80]}")
    time.sleep(SETTLING_SECONDS)
    for path in sorted(folder.iterdir()):
        ending.fail("executed_answers", f"payload {path.name.removeprefix('ran-')} made its file")
    if (after := subject.honest()) != before:
        ending.fail("executed_answers", f"honest answers earn {after} afterwards, {before} before")
    ending.ended = "answers ran" if ending.failures else "nothing ran"


def _was_called(listener: socket.socket) -> bool:
    try:
        listener.accept()[0].close()
    except BlockingIOError:
        return False
    return True
