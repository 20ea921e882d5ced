"""The folder of a run whose groups were rescued in every way there is, small enough to check by hand.

Update 1: tasks t and u, four rollouts each; at t the third succeeds.
Update 2: t fails four times and replays that success; u fails four times and is ranked (0.5, 0.25, 0, 0 are added); t
is tried twice more with its first failure in the prompt, and succeeds once; w fails twice, and a success at w with help
(one of two rollouts) joins it, told without; v differs by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import tomli_w

from groupwise import Algorithm, Step, StepTable, StopReason, Task, Trajectory, methods
from groupwise.data.past_rollouts import ReplayedRollout
from groupwise.data.records import Origin
from groupwise.methods.selective_buffer import SelectiveBuffer
from groupwise.store.journal import Journal, Update
from tests.unit.report.run_folders import settings

SCALE = 0.8 + 1e-6
"""Twice the deviation of four failures and a success, plus epsilon."""
FAILED, REPLAYED = -0.2 / SCALE, 0.8 / SCALE
"""Credit of those failures, and of that success."""


def rollout(task: str, number: int, reward: float, *, shaped: float = 0.0, version: int = 0) -> Trajectory:
    step = Step(
        index=0,
        reward=reward,
        shaped=shaped,
        state_key=("room", task),
        observation="You are in a room.",
        action=f"say {number}",
        prompt_ids=(1, 2),
        response_ids=(3,),
        logp_behaviour=(-0.5,),
        entropy=(1.0,),
    )
    return Trajectory(
        id=f"{task}/{number}",
        task=Task(id=task),
        rollout=number,
        steps=(step,),
        scores={"success": reward, "return": reward},
        stop=StopReason.TERMINATED,
        versions=(version,),
    )


def group(task: str, *rewards: float, shaped: Sequence[float] = (), version: int = 0) -> list[Trajectory]:
    added = shaped or (0.0,) * len(rewards)
    return [rollout(task, n, r, shaped=a, version=version) for n, (r, a) in enumerate(zip(rewards, added, strict=True))]


def guide_all(trajectories: Sequence[Trajectory], parent: str) -> list[Trajectory]:
    return [replace(trajectory, origin=Origin.REFLECTED, parent=parent) for trajectory in trajectories]


def credit_of(algorithm: Algorithm, trajectories: Sequence[Trajectory], version: int) -> list[list[float]]:
    values = algorithm.advantage(StepTable.from_trajectories(trajectories, version=version)).values.tolist()
    return [[value] for value in values]


def first_update(algorithm: Algorithm) -> Update:
    trajectories = group("t", 0.0, 0.0, 1.0, 0.0) + group("u", 0.0, 0.0, 0.0, 0.0)
    metrics = {"advantage/groups_with_signal": 0.5, "advantage/groups_rescued": 0.0, "rollout/zero_variance": 0.5}
    credit = credit_of(algorithm, trajectories, 0)
    return Update(number=1, version=1, metrics=metrics, trajectories=trajectories, credit=credit)


def replay(journal: Journal, task: str, *, number: int, keeps_credit: bool = False) -> ReplayedRollout:
    """The success of update 1, as a member of a group."""
    past = journal.past_rollouts.find("t", number=1, rollout=2)
    read = journal.past_rollouts.read(past)
    member = replace(read, task=Task(id=task), rollout=number, origin=Origin.REPLAYED, off_policy=True, parent=read.id)
    why = "every rollout failed"
    return ReplayedRollout(past=past, task=task, why=why, trajectory=member, log_ratio=0.125, keeps_credit=keeps_credit)


def second_update(journal: Journal, algorithm: Algorithm) -> Update:
    hinted = replace(
        rollout("w", 2, 1.0, version=1), origin=Origin.HINTED, off_policy=True, parent="w~cafe/1", id="w~cafe/1~"
    )
    own = [
        *group("t", 0.0, 0.0, 0.0, 0.0, version=1),
        *guide_all(group("t~beef", 0.0, 1.0, version=1), "1/t/0"),
        *group("u", 0.0, 0.0, 0.0, 0.0, shaped=(0.5, 0.25, 0.0, 0.0), version=1),
        *group("v", 0.0, 1.0, version=1),
        *group("w", 0.0, 0.0, version=1),
        hinted,
        *guide_all(group("w~cafe", 0.0, 1.0, version=1), "1/w/3"),
    ]
    past = replay(journal, "t", number=4)
    assert past.trajectory is not None
    credit = credit_of(algorithm, [*own, past.trajectory], 1)
    metrics = {
        "advantage/groups_with_signal": 1.0,
        "advantage/groups_rescued": 0.5,
        "rollout/zero_variance": 0.75,
        "replay/rollouts": 1.0,
        "replay/staleness": 1.0,
        "hint/groups": 2.0,
        "hint/success": 0.5,
        "shaping/groups": 0.25,
    }
    joined = replace(past, credit=tuple(credit[-1]))
    return Update(number=2, version=2, metrics=metrics, trajectories=own, credit=credit[:-1], replayed=[joined])


def write_rescue_run(folder: Path) -> Path:
    """Write the folder."""
    algorithm = methods.r3(alpha=2.0)
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(tomli_w.dumps(settings(algorithm)), encoding="utf-8")
    with Journal(folder / "journal.sqlite") as journal:
        journal.write(first_update(algorithm))
        journal.write(second_update(journal, algorithm))
    return folder


def write_buffer_run(folder: Path) -> Path:
    """Write the folder of a run whose second update replays that success with the credit it had, at u and at t."""
    algorithm = methods.r3_grpo_ablation().model_copy(update={"replay": SelectiveBuffer()})
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(tomli_w.dumps(settings(algorithm)), encoding="utf-8")
    with Journal(folder / "journal.sqlite") as journal:
        journal.write(first_update(algorithm))
        own = group("u", 0.0, 0.0, version=1) + group("v", 0.0, 1.0, version=1)
        past = replay(journal, "t", number=0, keeps_credit=True)
        kept = replace(past, credit=journal.past_rollouts.credit_of(past.past))
        credit = credit_of(algorithm, own, 1)
        metrics = {"replay/rollouts": 1.0}
        update = Update(number=2, version=2, metrics=metrics, trajectories=own, credit=credit, replayed=[kept])
        journal.write(update)
    return folder
