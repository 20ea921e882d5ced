"""Continuations: attempts that go on from the middle of a recorded one, as if it had been left there.

A continuation needs the world as it was and the prompt that would have come. The world is reached by carrying out the
recorded actions once and copying it at each step that is asked for (`Host.fork`); the past that prompts show is made
of the same observations and the recorded responses. So the policy sees exactly what it would have seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from groupwise.data.records import Origin, Trajectory
from groupwise.engines.engine import VersionSpan
from groupwise.envs.environment import Observation
from groupwise.rollout.environment_runner import EnvTiming, Fault, Host
from groupwise.rollout.episodes import Attempt, LiveAttempt, LiveEpisodes, Player
from groupwise.rollout.prompts import Exchange
from groupwise.system.errors import EnvironmentFault
from groupwise.system.text import quote_line


@dataclass(frozen=True, kw_only=True)
class Fork:
    """A continuation to play.

    Worked example: `Fork(trunk=attempt, kept=3, number=0, seed=7)` keeps steps 0, 1 and 2 of an attempt as they were,
    and lets the policy take step 3 and all that follow.
    """

    trunk: Trajectory
    """The recorded attempt, as it was played: without guidance, and before reward parts paid anything."""
    kept: int
    """How many of its first steps are kept; all of them = there is nothing to go on with, it is its own end."""
    number: int
    """Number of the continuation among those of its trunk and step."""
    seed: int
    """Its place in the tree of seeds."""


@dataclass
class _Trunk:
    """A recorded attempt whose actions are carried out again."""

    recorded: Trajectory
    number: int
    due: list[int]
    """Numbers of the forks that begin in it."""
    opening: tuple[int, ...] = ()
    past: list[Exchange] = field(default_factory=list)
    shown: Observation = field(default_factory=lambda: Observation(text=""))


def play_forks(forks: Sequence[Fork], player: Player, *, temperature: float) -> list[Trajectory]:
    """Play continuations to their ends; each record holds the steps that were kept and those that followed.

    A fork of a world that cannot be copied, or that does not come to where it was, is an error: whoever asks for
    continuations wants to know what would have followed from there.
    """
    live: dict[int, LiveAttempt] = {}
    by_trunk: dict[str, list[int]] = {}
    for number, fork in enumerate(forks):
        by_trunk.setdefault(fork.trunk.id, []).append(number)
    host, prompter = player.host, player.prompter
    # The environments that are copied are numbered after the copies.
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
        # Carry out the action that was recorded at the step, in all trunks, and see that it leads where it led.
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
    """What the environment shows before a step; an error where that is not what was recorded."""
    where = f"task {trunk.recorded.task.id!r}, attempt {trunk.recorded.attempt}, step {index}"
    if isinstance(shown, Fault):
        raise EnvironmentFault(f"{where}: its recorded actions cannot be repeated ({shown.message}); mend the world")
    recorded = trunk.recorded.steps[index].observation
    if shown.text != recorded:
        raise EnvironmentFault(
            f"{where}: its recorded actions lead to {quote_line(shown.text, limit=100)!r} and not to "
            f"{quote_line(recorded or '', limit=100)!r}; open the environment from the task alone"
        )
    return shown


def _fork_trunk(trunk: _Trunk, forks: Mapping[int, Fork], host: Host) -> dict[int, LiveAttempt]:
    """The continuations that begin where a trunk stands now, by number."""
    recorded = trunk.recorded
    has_ended = any(fork.kept == len(recorded.steps) for fork in forks.values())
    if not has_ended:
        for number, shown in host.fork(trunk.number, list(forks)).items():
            if isinstance(shown, Fault):
                raise EnvironmentFault(f"task {recorded.task.id!r}: attempt {number} cannot be forked: {shown.message}")
    live = {}
    for number, fork in forks.items():
        kept = list(recorded.steps[: fork.kept])
        # Which weights sampled a step: as it says itself, or those of its whole attempt.
        versions = [
            tuple(VersionSpan(*span) for span in step.versions)
            or tuple(VersionSpan(version, len(step.response_ids)) for version in recorded.versions[-1:])
            for step in kept
        ]
        attempt = Attempt(
            task=recorded.task, number=fork.number, seed=fork.seed, origin=Origin.BRANCHED, parent=recorded.id
        )
        live[number] = LiveAttempt(
            attempt, trunk.shown, trunk.opening, past=list(trunk.past), steps=kept, versions=versions
        )
        if has_ended:
            success = recorded.scores.get("success")
            live[number].stop, live[number].error = recorded.stop, recorded.error
            live[number].success = None if success is None else bool(success)
    return live
