"""Folders of runs that never were, whose tokens have credit of their own: two answers to a sum, cut into segments."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import tomli_w

from groupwise import Algorithm, Step, StepTable, StopReason, Task, Trajectory, methods
from groupwise.credit import ByTask, NoScale, Relative, StepRewardSignal
from groupwise.losses import BestAgainstWorst
from groupwise.methods.dpo import Dpo
from groupwise.methods.spo_chain import SegmentCredit
from groupwise.store.journal import Journal, Update

WORDS = ["[UNK]", "so", "three", "plus", "four", "is", "seven", "nine"]
UNLIKELY, SURE = -1.0, -0.01
"""Log-probs of tokens that train, and of one that does not."""

# Returns 1 and 0, so credit against the other is 1 and -1. Values of rollout 0 go 0, 0.75, 1; of rollout 1: 1, 0.25, 0.
INSIDE = Algorithm(advantage=methods.rloo().advantage, token_credit=SegmentCredit(max_probability=0.9))
FIRST_CREDIT = [0.75, 0.75, 0.25, 0.25, 0.25]
"""Credit of the sampled tokens of rollout 0."""
FIRST_TRAINS = [True, True, False, True, True]
SECOND_CREDIT = [-0.75, -0.75, -0.75, -0.25, -0.25]
PAIRED = Algorithm(advantage=methods.grpo().advantage, pairing=BestAgainstWorst(), loss=Dpo())
TEMPO = Relative(by=ByTask(), of=StepRewardSignal(), scale=NoScale(), average="step")
CHANNELLED = Algorithm(advantage=methods.grpo().advantage, channels={"tempo": TEMPO})


def answer(
    rollout: int, words: str, reward: float, ends: list[int], values: list[float], *, forced: int = 0, task: str = "sum"
) -> Trajectory:
    """A rollout of one step; the fourth token from its beginning is a sure one where it was forced."""
    ids = tuple(WORDS.index(word) if word in WORDS else 0 for word in words.split())
    logps = tuple(SURE if forced and place == 3 else UNLIKELY for place in range(len(ids)))
    step = Step(
        index=0,
        reward=reward,
        state_key="s",
        observation="What is three plus four?",
        action=words.split()[-1],
        well_formed=True,
        accepted=True,
        prompt_ids=(1, 2),
        response_ids=ids,
        logp_behaviour=logps,
        entropy=tuple(0.5 for _ in ids),
        forced=forced,
        info={"segment_ends": ends, "segment_values": values},
    )
    return Trajectory(
        id=f"{task}/{rollout}",
        task=Task(id=task),
        rollout=rollout,
        steps=(step,),
        scores={"success": reward, "return": reward},
        stop=StopReason.TERMINATED,
    )


ANSWERS = [
    answer(0, "so three plus four is seven", 1.0, [2, 5], [0.75], forced=1),
    answer(1, "three plus four is nine", 0.0, [3, 5], [0.25]),
]


def write_token_run(
    folder: Path,
    algorithm: Algorithm = INSIDE,
    rollouts: list[Trajectory] | None = None,
    words: list[str] | None = None,
) -> Path:
    """A run of one update, with a tokenizer where the package is installed."""
    answers = ANSWERS if rollouts is None else rollouts
    folder.mkdir(parents=True, exist_ok=True)
    settings: dict[str, Any] = {"seed": 0, "algorithm": algorithm.config()}
    (folder / "config.toml").write_text(tomli_w.dumps(settings), encoding="utf-8")
    credit = algorithm.credit(StepTable.from_trajectories(answers)).values.tolist()
    metrics = {"rollout/return": 0.5}
    with Journal(folder / "journal.sqlite") as journal:
        journal.write(
            Update(number=1, version=1, metrics=metrics, trajectories=answers, credit=[[value] for value in credit])
        )
    if importlib.util.find_spec("tokenizers") is not None:
        write_tokenizer(folder, words or WORDS)
    return folder


def write_tokenizer(folder: Path, words: list[str]) -> None:
    """The tokenizer of a checkpoint: a word a token."""
    import tokenizers

    numbers = {word: number for number, word in enumerate(words)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(numbers, unk_token="[UNK]"))
    (folder / "checkpoints" / "0001").mkdir(parents=True)
    (folder / "checkpoints" / "latest").write_text("0001\n")
    tokenizer.save(str(folder / "checkpoints" / "0001" / "tokenizer.json"))
