"""The lab on a run of one's own: its policy plays, continuations from forks tell the truth."""

from __future__ import annotations

from collections.abc import Sequence

from groupwise.core.errors import ConfigError
from groupwise.core.records import Trajectory
from groupwise.lab.played_recording import PlayedCondition, record_played
from groupwise.lab.recording import Recording
from groupwise.rewards import score_trajectory
from groupwise.rollout.episodes import Attempt
from groupwise.rollout.forks import Fork, play_forks
from groupwise.rollout.hosts.host import Fault
from groupwise.rollout.measures.tools import GivesHidden
from groupwise.training.attempts.measuring import RunTools
from groupwise.training.run import Run


class RunLabTools(RunTools):
    """A run's own tools for measures, which say what they have."""

    @property
    def gives(self) -> frozenset[str]:
        """What measures may need: not the policy that a run started from, which a lab has not."""
        hidden = {"hidden"} if isinstance(self._run.learner, GivesHidden) else set()
        judge = {"judge"} if self._run.judge is not None else set()
        return frozenset({"generate", "score", "play", "fork", "expert", *hidden, *judge})


def record_run(run: Run, condition: PlayedCondition) -> tuple[Recording, RunLabTools]:
    """Play a run's policy, which does not learn meanwhile, and continue some of its steps."""
    player, settings = run.player, run.config.rollout
    tasks = run.tasks[: condition.tasks]
    _check_forkable(run)

    def play(attempts: Sequence[Attempt]) -> list[Trajectory]:
        return player.play(attempts, temperature=settings.temperature)

    def pay(played: Trajectory) -> Trajectory:
        return score_trajectory(played, run.config.rewards, read_response=run.prompter.text)

    def continue_from(forks: Sequence[Fork]) -> list[Trajectory]:
        return [pay(played) for played in play_forks(forks, player, temperature=settings.temperature)]

    recording = record_played(tasks, play, continue_from, condition, pay=pay)
    return recording, RunLabTools(run, 0)


def _check_forkable(run: Run) -> None:
    """Refuse a world that cannot be copied, before anything is played."""
    run.host.open({0: run.tasks[0]})
    copy = run.host.fork(0, [1])[1]
    run.host.close([0, 1])
    if isinstance(copy, Fault):
        raise ConfigError(
            f"env: there are no continuations to tell the truth by, for a world cannot be copied: {copy.message}"
        )
