"""Play the rollouts that the benchmark trains on, and write them down as token ids.

    python -m benchmarks.prefix.record --games FOLDER --tokenizer FOLDER [--data benchmarks/prefix/data]

`household` is the demo's home under the demo's template, with its word tokenizer. `alfworld` are the official games
under the template of examples/alfworld.toml, which lists what is possible now; `dialogue` the same rollouts without
lists, so that prompts of the full history continue one another, and `published` under the frame of the published
agents: all three with SmolLM2's tokenizer. The agent does what the expert would, and in a share of its steps something
else that is possible. Rollouts are played once and put into the prompts of every history, by the code that rollouts
use. Thoughts, which the published frame asks for, are words drawn at random, so that they are shared only by chance.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.prefix.recordings import DATA, HISTORIES, Recording, num_tokens, with_advantages
from groupwise.data.records import Task
from groupwise.data.samples import Sample
from groupwise.data.seeds import seed_of
from groupwise.envs import Alfworld, Household
from groupwise.envs.environment import EnvironmentPart, Observation
from groupwise.models.forest import merge_sequences
from groupwise.rollout import PromptTemplate, PublishedTemplate
from groupwise.rollout.prompts import Exchange, History, Prompter, Template

ROLLOUTS = 16
TASKS = {"household": 32, "alfworld": 4}
STRAYS = {"household": 0.5, "alfworld": 0.3}
"""Share of the steps in which the agent does something else: in the demo, that of its teacher."""
MAX_STEPS = 30
"""Steps of a rollout in ALFWorld."""
THOUGHT_WORDS = (20, 60)
"""Fewest and most words of a thought."""
WORDS = Alfworld().vocabulary()
DEMO = Household(rooms=("bedroom",), categories=("pick", "examine"), num_receptacles=3, num_objects=2, max_steps=15)
"""The home of examples/household.toml."""
TEMPLATES: dict[str, Template] = {
    "alfworld": PromptTemplate(show_admissible="yes", tell_past=True),
    "dialogue": PromptTemplate(),
    "published": PublishedTemplate(),
}
"""By source, for the official games."""


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One step: what was seen, and what was done."""

    seen: Observation
    action: str


def play(part: EnvironmentPart, task: Task, rollout: int, *, strays: float) -> list[Turn]:
    """One rollout of an expert that strays; where it knows no way on, any action that is possible."""
    environment: Any = part.open(task)
    draws = Random(seed_of(0, task.id, rollout))
    turns, seen = [], environment.observe()
    for _ in range(part.max_steps):
        action = None if draws.random() < strays else environment.expert()
        if action is None:
            action = draws.choice(seen.admissible)
        turns.append(Turn(seen=seen, action=action))
        outcome = environment.act(action)
        if outcome.ended:
            break
        seen = outcome.observation
    return turns


def prompts(prompter: Prompter, turns: Sequence[Turn], said: Sequence[str]) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Prompt and response of each step of a rollout, as a rollout puts them."""
    opening, past = prompter.encode_opening(turns[0].seen.goal), list[Exchange]()
    for turn, words in zip(turns, said, strict=True):
        response = (*prompter.encode(words), prompter.frame.end_id)
        yield prompter.prompt(opening, past, turn.seen), response
        past.append(prompter.make_exchange(turn.seen, response, turn.action))


def thought(task: str, rollout: int, step: int) -> str:
    """Words that nobody else thinks, of the agent's own vocabulary."""
    draws = Random(seed_of(1, task, rollout, step))
    return " ".join(draws.choices(WORDS, k=draws.randint(*THOUGHT_WORDS)))


def record(
    source: str, tokenizer: Any, *, played: Sequence[Sequence[Sequence[Turn]]], template: Template, instruction: str
) -> Iterator[Recording]:
    """The rollouts at some tasks, in the prompts of each history."""
    for name, history in HISTORIES.items():
        samples = list(_samples(tokenizer, template, history, instruction, played))
        yield Recording(source=source, history=name, samples=with_advantages(samples))


def _samples(
    tokenizer: Any,
    template: Template,
    history: History,
    instruction: str,
    played: Sequence[Sequence[Sequence[Turn]]],
) -> Iterator[Sample]:
    prompter = Prompter(tokenizer, template=template, history=history, instruction=instruction)
    for task, rollouts in enumerate(played):
        for rollout, turns in enumerate(rollouts):
            said = [turn.action for turn in turns]
            if template.asks_for_tags:
                goal = turns[0].seen.goal
                said = [
                    f"<think>{thought(goal, rollout, step)}</think><action>{action}</action>"
                    for step, action in enumerate(said)
                ]
            for step, (prompt, response) in enumerate(prompts(prompter, turns, said)):
                yield Sample(
                    prompt_ids=prompt,
                    response_ids=response,
                    advantage=0.0,
                    trajectory=task * len(rollouts) + rollout,
                    step=step,
                    group=task,
                )


def household() -> Iterator[Recording]:
    """The demo's home, with prompts as the demo puts them."""
    from groupwise.models.tiny import EXTRA_WORDS, make_word_tokenizer

    played = _play_all(DEMO, DEMO.task_set("train")[: TASKS["household"]], STRAYS["household"])
    tokenizer = make_word_tokenizer((*DEMO.vocabulary(), *EXTRA_WORDS))
    return record("household", tokenizer, played=played, template=PromptTemplate(), instruction=DEMO.instruction())


def alfworld(games: str, tokenizer_folder: str) -> Iterator[Recording]:
    """The official games: one each of four types of task, under every template."""
    from transformers import AutoTokenizer

    part = Alfworld(path=games, max_steps=MAX_STEPS)
    by_type = {task.tags: task for task in reversed(part.task_set("train"))}
    played = _play_all(part, list(by_type.values())[: TASKS["alfworld"]], STRAYS["alfworld"])
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder)
    for source, template in TEMPLATES.items():
        yield from record(source, tokenizer, played=played, template=template, instruction=part.instruction())


def _play_all(part: EnvironmentPart, tasks: Sequence[Task], strays: float) -> list[list[list[Turn]]]:
    return [[play(part, task, rollout, strays=strays) for rollout in range(ROLLOUTS)] for task in tasks]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", help="folder of ALFWorld's games; without it only the household is played")
    parser.add_argument("--tokenizer", help="folder of SmolLM2's tokenizer")
    parser.add_argument("--data", type=Path, default=DATA)
    options = parser.parse_args()
    options.data.mkdir(parents=True, exist_ok=True)
    recordings = list(household())
    if options.games:
        recordings += alfworld(options.games, options.tokenizer)
    for recording in recordings:
        path = recording.save(options.data)
        forest = merge_sequences([sample.token_ids for sample in recording.samples])
        print(
            f"{path.name}: {len(recording.samples):,} steps, {num_tokens(recording.samples):,} tokens, "
            f"{forest.token_ratio:.2f}x shared, {path.stat().st_size / 1e3:.0f} kB"
        )


if __name__ == "__main__":
    main()
