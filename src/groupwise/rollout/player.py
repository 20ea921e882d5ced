"""Who plays attempts: an engine that answers, a host that environments run in, and how prompts and actions are made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from groupwise.core.records import Trajectory
from groupwise.engines.engine import Engine
from groupwise.rollout.actions import ActionRule
from groupwise.rollout.episodes import Attempt, Sampling, play_attempts
from groupwise.rollout.hosts.host import Host
from groupwise.rollout.hosts.waiting import Waiting
from groupwise.rollout.prompts.prompter import Prompter
from groupwise.rollout.stop_signal import StopSignal


@dataclass(frozen=True, kw_only=True)
class Player:
    """A policy at play, in training and in evaluation alike."""

    engine: Engine
    """Samples the responses."""
    host: Host
    """Where the environments run."""
    prompter: Prompter
    """Makes prompts of observations."""
    action_rule: ActionRule
    """How actions are read out of responses."""
    max_tokens: int
    """Most tokens of a response."""
    stop: StopSignal | None = None
    """Heard between steps, where another thread may end the attempts; None = nobody does."""

    def play(
        self, attempts: Sequence[Attempt], *, temperature: float, waiting: Waiting | None = None
    ) -> list[Trajectory]:
        """Play attempts to their ends; `waiting` is told what environments took."""
        return play_attempts(
            attempts,
            host=self.host,
            engine=self.engine,
            prompter=self.prompter,
            rule=self.action_rule,
            sampling=Sampling(max_tokens=self.max_tokens, temperature=temperature),
            waiting=waiting,
            stop=self.stop,
        )
