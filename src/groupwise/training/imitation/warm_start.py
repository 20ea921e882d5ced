"""The warm start of a run: its expert plays training tasks, and the model learns to say what the expert did.

The expert may know more than the agent sees (where things are hidden); what cannot be known from the prompt averages
out into a search over what is possible, which is the exploration that the comparison of attempts then sharpens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from random import Random

from groupwise.core.errors import ConfigError, TrainingError
from groupwise.core.records import Task
from groupwise.core.sample import Sample
from groupwise.core.seeds import seed_of
from groupwise.envs.environment import Observation, Outcome
from groupwise.envs.part_queries import ask_max_steps
from groupwise.rollout.hosts.host import Advice, Fault, NoExpert
from groupwise.rollout.prompts.prompter import Exchange
from groupwise.training.learner.protocol import ReportEpoch
from groupwise.training.run import Run
from groupwise.training.run_checks import NO_EXPERT
from groupwise.training.run_config import WarmStartConfig

ReportFaults = Callable[[Mapping[str, int], int], None]
"""Called with the number of attempts that a fault ended, by cause, and with the number of all attempts."""
MAX_AT_ONCE = 64
"""Expert attempts that are played in step with one another, so that workers have work and none holds too many."""


def warm_start(
    run: Run,
    config: WarmStartConfig,
    *,
    report_epoch: ReportEpoch | None = None,
    report_faults: ReportFaults | None = None,
) -> list[float]:
    """Let the learner imitate expert attempts; mean loss of each epoch. The engine takes the weights over."""
    samples = make_expert_samples(run, run.tasks[: config.tasks], config, report_faults=report_faults)
    return imitate_samples(run, samples, config, report_epoch=report_epoch)


def imitate_samples(
    run: Run, samples: Sequence[Sample], config: WarmStartConfig, *, report_epoch: ReportEpoch | None = None
) -> list[float]:
    """Let the run's learner learn to say what samples say, tokens weighted by `advantage`; mean loss of each epoch.

    The engine takes the weights over.

    Args:
        run: Whose learner.
        samples: What to say.
        config: Epochs and step sizes.
        report_epoch: Called after each epoch with the losses so far, and how many epochs there will be.
    """
    losses = run.learner.imitate(samples, config, seed=run.config.seed, report=report_epoch)
    run.hand_over(0)
    return losses


def make_expert_samples(
    run: Run, tasks: Sequence[Task], config: WarmStartConfig, *, report_faults: ReportFaults | None = None
) -> list[Sample]:
    """What the expert says at every step of its attempts, put exactly as a rollout would put it.

    The environments run where those of rollouts do. One that raises, hangs or dies costs its own attempt, of which
    nothing is learnt; too few attempts without a fault stop the run.

    Args:
        run: Whose environments, prompts and seeds.
        tasks: One attempt at each.
        config: How the teacher strays.
        report_faults: Called where a fault ended some attempts: how many by cause, and how many attempts there were.
    """
    lessons = [_Lesson(run, task, number, config) for number, task in enumerate(tasks)]
    for first in range(0, len(lessons), MAX_AT_ONCE):
        _play_lessons(run, lessons[first : first + MAX_AT_ONCE])
    causes = Counter(lesson.fault.message for lesson in lessons if lesson.fault is not None)
    _check_enough(len(lessons), causes, run.config.training.min_survivors)
    if causes and report_faults is not None:
        report_faults(causes, len(lessons))
    samples = [sample for lesson in lessons if lesson.fault is None for sample in lesson.samples]
    if not samples:
        raise ConfigError(f"the expert says nothing at any of {len(lessons)} tasks; leave out [warm_start]")
    return samples


def _play_lessons(run: Run, lessons: Sequence[_Lesson]) -> None:
    """Play the teacher's attempts to their ends, in step with one another."""
    shown = run.host.open({number: lesson.task for number, lesson in enumerate(lessons)})
    for number, lesson in enumerate(lessons):
        lesson.begin(shown[number])
    active = [number for number, lesson in enumerate(lessons) if not lesson.has_ended]
    for _ in range(ask_max_steps(run.config.env)):
        advice = run.host.ask_experts(active)
        actions = {number: action for number in active if (action := lessons[number].teach(advice[number])) is not None}
        run.host.close([number for number in active if number not in actions])
        outcomes = run.host.act(actions)
        for number, outcome in outcomes.items():
            lessons[number].take(outcome)
        run.host.close([number for number in actions if lessons[number].has_ended])
        active = [number for number in actions if not lessons[number].has_ended]
        if not active:
            break
    run.host.close(active)


class _Lesson:
    """An attempt of the teacher: the expert, or what noise and sloppiness put in its place; each step is a sample."""

    def __init__(self, run: Run, task: Task, number: int, config: WarmStartConfig) -> None:
        self.task, self.samples = task, list[Sample]()
        self.has_ended = False
        self.fault: Fault | None = None
        self._run, self._number, self._config = run, number, config
        self._draws = Random(seed_of(run.config.seed, "warm start", task.id))
        self._offered: dict[str, None] = {}  # actions in the order they came up
        self._past = list[Exchange]()

    def begin(self, shown: Observation | Fault) -> None:
        """See what the environment shows first."""
        if isinstance(shown, Fault):
            self._fail(shown)
            return
        self._seen = shown
        self._opening = self._run.prompter.for_task(self.task).encode_opening(shown.goal)

    def teach(self, advice: Advice) -> str | None:
        """Make a sample of what the teacher does next, and say what that is; None where the attempt is over."""
        if isinstance(advice, NoExpert):
            raise ConfigError(NO_EXPERT)
        if isinstance(advice, Fault) or advice is None:
            self.has_ended = True
            self.fault = advice
            return None
        seen, config, prompter = self._seen, self._config, self._run.prompter
        action, strays = self._choose(advice)
        observation_ids = prompter.encode_observation(seen)
        response_text = self._run.config.rollout.action_rule.say(action, admissible=seen.admissible)
        self._response = (*prompter.encode(response_text), prompter.frame.end_id)
        self._action = action
        prompt = prompter.prompt(self._opening, self._past, seen)
        # Within a single message the observation has no place of its own to be weighed at.
        shown = len(prompt) - len(observation_ids) - len(prompter.frame.before_response) if observation_ids else 0
        weight, index = 0.0 if strays else 1.0, len(self.samples)
        self.samples.append(
            _make_sample(prompt, self._response, shown, weight, config.observation_weight, self._number, index)
        )
        return action

    def take(self, outcome: Outcome | Fault) -> None:
        """Move on to what the environment shows next."""
        if isinstance(outcome, Fault):
            self._fail(outcome)
        elif outcome.ended:
            self.has_ended = True
        else:
            self._past.append(self._run.prompter.make_exchange(self._seen, self._response, self._action))
            self._seen = outcome.observation

    def _choose(self, advice: str) -> tuple[str, bool]:
        """What the teacher does, and whether that is a stray."""
        seen, draws = self._seen, self._draws
        self._offered |= dict.fromkeys(seen.admissible or ())
        if self._offered and draws.random() < self._config.noise:
            return draws.choice(list(self._offered)), True
        if seen.admissible and draws.random() < self._config.sloppiness:
            return draws.choice(seen.admissible), False
        return advice, False

    def _fail(self, fault: Fault) -> None:
        self.has_ended, self.fault = True, fault


def _check_enough(attempts: int, causes: Counter[str], min_share: float) -> None:
    """Stop the run, with the causes, where too few attempts ended without a fault."""
    survivors = attempts - causes.total()
    if survivors < max(min_share * attempts, 1):
        listed = "; ".join(f"{count} x {cause}" for cause, count in causes.most_common(3))
        raise TrainingError(
            f"warm start: only {survivors} of {attempts} expert attempts survived ({listed}); mend the environment"
        )


def _make_sample(
    prompt: tuple[int, ...],
    response: tuple[int, ...],
    shown: int,
    weight: float,
    observation_weight: float,
    trajectory: int,
    step: int,
) -> Sample:
    """A step to imitate; with a weight on observations, what the environment showed last is said too."""
    cut = shown if observation_weight and shown > 0 else len(prompt)
    return Sample(
        prompt_ids=prompt[:cut],
        response_ids=(*prompt[cut:], *response),
        advantage=(*[observation_weight] * (len(prompt) - cut), *[weight] * len(response)),
        trajectory=trajectory,
        step=step,
        group=trajectory,
        trains=bool(weight or cut < len(prompt)),
    )
