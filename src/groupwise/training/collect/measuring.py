"""Scorers: before the advantages, they ask the engine, the learner or the judge, and add step info."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from groupwise.credit import CRITIC_VALUE, CRITIC_VALUES, score_trajectory
from groupwise.data.records import FAULTS, Origin, Step, Trajectory
from groupwise.data.samples import PolicyRole, PromptAndResponse, Sample
from groupwise.data.segments import FloatArray
from groupwise.data.step_fields import RESERVED_NAMES
from groupwise.engines.engine import Generation, Request, check_generations
from groupwise.learner.protocol import GivesValues, Learner, read_hidden_states
from groupwise.parts.part import name_of
from groupwise.parts.slots import Critic, Scorer
from groupwise.rollout.environment_runner import Fault, InProcess, NoExpert
from groupwise.rollout.episodes import Rollout
from groupwise.rollout.forks import Fork, play_forks
from groupwise.rollout.judges import JudgeQuestion
from groupwise.rollout.live_judge import JudgeCost
from groupwise.rollout.scorers import Continuation, GivesHidden
from groupwise.system.errors import ConfigError, RecordError
from groupwise.system.json_text import is_plain
from groupwise.training.run import Run

FORKS_AT_ONCE = 2048
"""Continuations that run together, each in an environment of its own."""


def run_scorers(
    run: Run, number: int, groups: Sequence[Sequence[Trajectory]]
) -> tuple[Sequence[Sequence[Trajectory]], dict[str, float]]:
    """Let the scorers add step info, in order; returns the groups with it, and the cost as metrics."""
    tools, draw = RunTools(run, number), run.draw(number)
    for place, part in enumerate(run.config.algorithm.scorers or ()):
        tools.scorer = part
        info = part(groups, tools, draw=partial(draw, "measure", place))
        groups = add_info(part, groups, info)
    return groups, tools.cost()


def add_info(part: Scorer, groups: Sequence[Sequence[Trajectory]], info: Any) -> list[list[Trajectory]]:
    """Put a scorer's step info on the steps, after checking it."""
    return [
        [
            replace(trajectory, steps=tuple(_add_to_steps(part, trajectory, info_of_rollout)))
            for trajectory, info_of_rollout in _pair_up(part, "rollouts of a group", group, info_of_group)
        ]
        for group, info_of_group in _pair_up(part, "groups", groups, info)
    ]


def _add_to_steps(part: Scorer, trajectory: Trajectory, info_of_rollout: Any) -> Iterator[Step]:
    for step, info in _pair_up(part, "steps of a rollout", trajectory.steps, info_of_rollout):
        where = f"{trajectory.describe()}, step {step.index}: the scorer {name_of(part)}"
        if not isinstance(info, Mapping) or not is_plain(dict(info)):
            raise RecordError(
                f"{where} returned {info!r}; step info holds finite Python numbers (float(value) of NumPy's), text, "
                "booleans, and lists and maps of them"
            )
        for name in info:
            if name in RESERVED_NAMES or name in step.info:
                raise RecordError(f"{where} returned {name!r}, a name that is taken; choose another name")
        yield replace(step, info={**step.info, **info}) if info else step


def _pair_up(part: Scorer, what: str, wanted: Sequence[Any], info: Any) -> Iterator[tuple[Any, Any]]:
    if not isinstance(info, list | tuple) or len(info) != len(wanted):
        num = len(info) if isinstance(info, list | tuple) else type(info).__name__
        raise RecordError(
            f"the scorer {name_of(part)} returned info for {num} of {len(wanted)} {what}; return a list of groups of "
            "rollouts of steps, with one mapping per step"
        )
    return zip(wanted, info, strict=True)


def value_states(
    learner: Learner, critic: Critic, groups: Sequence[Sequence[Trajectory]]
) -> Sequence[Sequence[Trajectory]]:
    """Write what the critic says of each state as step info, after the forced tokens of a response if there are any."""
    assert isinstance(learner, GivesValues), "checked when the run was opened"
    samples = list[Sample]()
    for number, group in enumerate(groups):
        for trajectory in group:
            for step in trajectory.steps:
                prompt, sampled = step.prompt_ids + step.response_ids[: step.forced], step.response_ids[step.forced :]
                # The last token of a sample is never read: where only its beginning is valued, any will do.
                response = sampled if critic.by == "token" and sampled else prompt[-1:]
                samples.append(
                    Sample(
                        prompt_ids=prompt,
                        response_ids=response,
                        advantage=0.0,
                        logp_behaviour=(0.0,) * len(response),
                        trajectory=len(samples),
                        step=0,
                        group=number,
                    )
                )
    values = iter(learner.values(samples))

    def add_to(step: Step) -> Step:
        own = next(values)
        info: dict[str, Any] = {CRITIC_VALUE: own[0]}
        if critic.by == "token":
            info[CRITIC_VALUES] = list(own) if len(step.response_ids) > step.forced else []
        return replace(step, info={**step.info, **info})

    return [
        [replace(trajectory, steps=tuple(map(add_to, trajectory.steps))) for trajectory in group] for group in groups
    ]


class RunTools:
    """The scorers' tools for one update: engine, learner and judge. It counts their tokens and questions."""

    def __init__(self, run: Run, number: int) -> None:
        self._run, self._number = run, number
        self._read = self._sampled = 0
        self._judge_cost = JudgeCost()
        self.scorer: Scorer | None = None
        """The scorer that uses the tools now: only what it declares in `needs` is allowed."""

    @property
    def temperature(self) -> float:
        return self._run.config.rollout.temperature

    @property
    def stop_ids(self) -> tuple[int, ...]:
        return (self._run.prompter.frame.end_id,)

    def generate(self, requests: Sequence[Request]) -> list[Generation]:
        self._check_declared("generate")
        generations = self._run.engine.generate(requests)
        self._read += sum(len(request.prompt_ids) for request in requests)
        self._sampled += sum(len(generation.response_ids) for generation in check_generations(generations))
        return generations

    def score(
        self, pairs: Sequence[PromptAndResponse], *, temperature: float | None = None, weights: PolicyRole = "current"
    ) -> list[tuple[float, ...]]:
        """Log-probs of the policy by the engine, of the reference by the learner."""
        self._check_declared("score" if weights == "current" else "reference")
        self._count(pairs)
        divisor = self.temperature if temperature is None else temperature
        if weights == "current":
            return self._run.engine.score(pairs, temperature=divisor)
        return self._run.learner.logps(pairs, temperature=divisor, weights="reference")

    def hidden(self, pairs: Sequence[PromptAndResponse]) -> list[FloatArray]:
        self._check_declared("hidden")
        self._count(pairs)
        learner = self._run.learner
        assert isinstance(learner, GivesHidden), "checked when the run was opened"
        return read_hidden_states(learner.hidden_states(pairs), pairs, f"the learner {type(learner).__name__}")

    def judge(self, questions: Sequence[JudgeQuestion]) -> list[float]:
        self._check_declared("judge")
        assert self._run.judge is not None, "checked when the run was opened"
        return self._run.judge.ask(questions, self._judge_cost, update=self._number)

    def play(self, continuations: Sequence[Continuation], *, extra_tokens: int = 0) -> list[Trajectory]:
        """Run rollouts with given beginnings, with the run's engine, environments and rewards."""
        self._check_declared("play")
        rollouts = [
            Rollout(task=begun.task, number=number, seed=begun.seed, forced=begun.forced, origin=Origin.HINTED)
            for number, begun in enumerate(continuations)
        ]
        player = replace(self._run.player, max_tokens=self._run.player.max_tokens + extra_tokens)
        played = player.play(rollouts, temperature=self.temperature)
        steps = [step for trajectory in played for step in trajectory.steps]
        self._read += sum(len(step.prompt_ids) + step.forced for step in steps)
        self._sampled += sum(len(step.response_ids) - step.forced for step in steps)
        return [
            trajectory
            if trajectory.stop in FAULTS or not trajectory.steps
            else score_trajectory(trajectory, self._run.config.rewards, read_response=player.prompter.text)
            for trajectory in played
        ]

    def play_forks(self, forks: Sequence[Fork]) -> list[Trajectory]:
        self._check_declared("fork")
        played = [
            trajectory
            for first in range(0, len(forks), FORKS_AT_ONCE)
            for trajectory in play_forks(
                forks[first : first + FORKS_AT_ONCE], self._run.player, temperature=self.temperature
            )
        ]
        steps = [step for fork, trajectory in zip(forks, played, strict=True) for step in trajectory.steps[fork.kept :]]
        self._read += sum(len(step.prompt_ids) for step in steps)
        self._sampled += sum(len(step.response_ids) for step in steps)
        return played

    def ask_expert(self, rollouts: Sequence[Trajectory]) -> list[list[str | None]]:
        """The actions that the environments' experts would have taken; the rollouts are repeated here."""
        self._check_declared("expert")
        with InProcess(self._run.config.env) as host:
            return [_advise_on(trajectory, host) for trajectory in rollouts]

    def text(self, ids: Sequence[int]) -> str:
        return self._run.prompter.text(ids)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return self._run.prompter.pieces(ids)

    def encode(self, text: str) -> tuple[int, ...]:
        return self._run.prompter.encode(text)

    def cost(self) -> dict[str, float]:
        judge, counted = self._judge_cost, dict[str, int]()
        if self._run.judge is not None and self._run.judge.is_recorded:
            counted = {"calls": judge.calls, "unreadable": judge.unreadable, "fallbacks": judge.fallbacks}
        return {
            "scorers/read_tokens": float(self._read),
            "scorers/sampled_tokens": float(self._sampled),
            "scorers/questions": float(judge.questions),
            **{f"judge/{what}": float(number) for what, number in counted.items()},
        }

    def _check_declared(self, need: str) -> None:
        if self.scorer is not None and need not in self.scorer.needs:
            raise ConfigError(
                f"algorithm.scorers: {name_of(self.scorer)} used {need!r} without declaring it; add {need!r} to "
                "its `needs`"
            )

    def _count(self, pairs: Sequence[PromptAndResponse]) -> None:
        self._read += sum(len(prompt) + len(response) for prompt, response in pairs)


def _advise_on(trajectory: Trajectory, host: InProcess) -> list[str | None]:
    advice: list[str | None] = []
    is_open = not isinstance(host.open({0: trajectory.task})[0], Fault)
    for step in trajectory.steps:
        advised = host.ask_experts([0])[0] if is_open else None
        if isinstance(advised, NoExpert):
            raise ConfigError("a scorer asks the environment's expert, but there is none; leave the scorer out")
        advice.append(advised if isinstance(advised, str) else None)
        is_open = is_open and not isinstance(advised, Fault)
        is_open = is_open and not isinstance(host.act({0: step.action or ""})[0], Fault)
    host.close([0])
    return advice
