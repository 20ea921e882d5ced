"""Continuations: rollouts that continue from the middle of a recorded one.

A continuation needs the environment and the prompt as they were. The recorded actions are repeated once, and the
environment is copied at each step that is needed (`Host.fork`). The history in the prompt is made of the same
observations and the recorded responses. So the policy sees exactly what it would have seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from groupwise.data.records import Origin, Trajectory
from groupwise.engines.engine import VersionSpan
from groupwise.envs.environment import Observation
from groupwise.rollout.environment_runner import EnvTiming, Fault, Host
from groupwise.rollout.episodes import LiveEpisodes, LiveRollout, Player, Rollout
from groupwise.rollout.prompts import NO_OPENING, Exchange, Opening
from groupwise.system.errors import EnvironmentFault
from groupwise.system.text import quote_line


@dataclass(frozen=True, kw_only=True)
class Fork:
    """A continuation to run.

    Worked example: `Fork(trunk=rollout, kept=3, number=0, seed=7)` keeps steps 0, 1 and 2 of a rollout. The policy
    takes step 3 and all later ones.
    """

    trunk: Trajectory
    """The recorded rollout, without a hint, and before reward parts changed its rewards."""
    kept: int
    """How many of its first steps are kept; if all, nothing is sampled."""
    number: int
    """Number of the continuation among those of its trunk and step."""
    seed: int
    """Its seed."""


@dataclass
class _Trunk:
    """A recorded rollout whose actions are repeated."""

    recorded: Trajectory
    number: int
    due: list[int]
    """Numbers of the forks that start in it."""
    opening: Opening = NO_OPENING
    past: list[Exchange] = field(default_factory=list)
    shown: Observation = field(default_factory=lambda: Observation(text=""))


def play_forks(forks: Sequence[Fork], player: Player, *, temperature: float) -> list[Trajectory]:
    """Run continuations to their ends; each trajectory has the kept steps and the new ones.

    It is an error if an environment cannot be copied, or if the repeated actions lead elsewhere.
    """
    live: dict[int, LiveRollout] = {}
    by_trunk: dict[str, list[int]] = {}
    for number, fork in enumerate(forks):
        by_trunk.setdefault(fork.trunk.id, []).append(number)
    host, prompter = player.host, player.prompter
    # Numbers of the copied environments follow those of the copies.
    trunks = [_Trunk(forks[due[0]].trunk, number, due) for number, due in enumerate(by_trunk.values(), len(forks))]
    shown = host.open({trunk.number: trunk.recorded.task for trunk in trunks})
    for trunk in trunks:
        trunk.shown = _check_shown(trunk, 0, shown[trunk.number])
        trunk.opening = prompter.for_task(trunk.recorded.task).encode_opening(trunk.shown.goal)
    for index in range(max((fork.kept for fork in forks), default=-1) + 1):
        for trunk in trunks:
            here = {number: forks[number] for number in trunk.due if forks[number].kept == index}
            live |= _fork_trunk(trunk, here, host)
        further = [trunk for trunk in trunks if any(index < forks[number].kept for number in trunk.due)]
        # Repeat the recorded action of the step in all trunks, and check that it leads to the same observation.
        steps = {trunk.number: trunk.recorded.steps[index] for trunk in further}
        outcomes = host.act({number: step.action or "" for number, step in steps.items()})
        for trunk in further:
            step, outcome = steps[trunk.number], outcomes[trunk.number]
            trunk.past.append(prompter.make_exchange(trunk.shown, step.response_ids, step.action or ""))
            if index + 1 < len(trunk.recorded.steps):
                seen = outcome if isinstance(outcome, Fault) else outcome.observation
                trunk.shown = _check_shown(trunk, index + 1, seen)
    host.close([trunk.number for trunk in trunks])
    ordered = {number: live[number] for number in range(len(forks))}
    played = LiveEpisodes(player, ordered, temperature, EnvTiming()).play_to_end()
    host.close(range(len(forks)))
    return [
        replace(trajectory, id=f"{fork.trunk.id}/{fork.kept}/{fork.number}")
        for fork, trajectory in zip(forks, played, strict=True)
    ]


def _check_shown(trunk: _Trunk, index: int, shown: Observation | Fault) -> Observation:
    """The observation before a step; an error if it is not the recorded one."""
    where = f"task {trunk.recorded.task.id!r}, rollout {trunk.recorded.rollout}, step {index}"
    if isinstance(shown, Fault):
        raise EnvironmentFault(
            f"{where}: its recorded actions cannot be repeated ({shown.message}); fix the environment"
        )
    recorded = trunk.recorded.steps[index].observation
    if shown.text != recorded:
        raise EnvironmentFault(
            f"{where}: its recorded actions lead to {quote_line(shown.text, limit=100)!r} and not to "
            f"{quote_line(recorded or '', limit=100)!r}; open the environment from the task alone"
        )
    return shown


def _fork_trunk(trunk: _Trunk, forks: Mapping[int, Fork], host: Host) -> dict[int, LiveRollout]:
    """The continuations that start at the current step of a trunk, by number."""
    recorded = trunk.recorded
    has_ended = any(fork.kept == len(recorded.steps) for fork in forks.values())
    if not has_ended:
        for number, shown in host.fork(trunk.number, list(forks)).items():
            if isinstance(shown, Fault):
                raise EnvironmentFault(f"task {recorded.task.id!r}: rollout {number} cannot be forked: {shown.message}")
    live = {}
    for number, fork in forks.items():
        kept = list(recorded.steps[: fork.kept])
        # The versions of the step if it has them, else those of its whole rollout.
        versions = [
            tuple(VersionSpan(*span) for span in step.versions)
            or tuple(VersionSpan(version, len(step.response_ids)) for version in recorded.versions[-1:])
            for step in kept
        ]
        rollout = Rollout(
            task=recorded.task, number=fork.number, seed=fork.seed, origin=Origin.BRANCHED, parent=recorded.id
        )
        live[number] = LiveRollout(
            rollout, trunk.shown, trunk.opening, past=list(trunk.past), steps=kept, versions=versions
        )
        if has_ended:
            success = recorded.scores.get("success")
            live[number].stop, live[number].error = recorded.stop, recorded.error
            live[number].success = None if success is None else bool(success)
    return live
