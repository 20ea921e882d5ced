"""The conformance suite for environments: run it on your environment before you train in it.

for result in check_environment(MyEnvironment()):
    print(result.status, result.rule, result.found)
"""

from __future__ import annotations

import copy
import random
import re
import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import TypeVar

import numpy as np

from groupwise.data.records import Task
from groupwise.envs import plain_records
from groupwise.envs.environment import Environment, EnvironmentPart, Expert, Forkable, Observation, Outcome
from groupwise.envs.kit.draws import Draws
from groupwise.envs.kit.task_set import SPLITS, check_disjoint, task_set_hash
from groupwise.envs.kit.words import split_words
from groupwise.envs.mixture import has_vocabulary
from groupwise.envs.part_queries import ask_instruction, ask_task_set, ask_vocabulary
from groupwise.system.errors import ConfigError, EnvironmentFault, GroupwiseError
from groupwise.system.quoted_errors import (
    BrokenRuleError,
    NotTestedError,
    RuleResult,
    describe_result,
    quote_error,
    try_rule,
)

# The environment under check, and rollouts at its tasks by random actions, recorded so that they can be replayed.

EXPERT_SHARE = 0.3
"""Fraction of expert actions in a random rollout, so that it makes progress."""

NONSENSE = ("qwxyz frobnicate", "", "   ", "go to", "ß🙂\n\t", "a" * 10_000)
"""Actions that are invalid in every environment."""

Record = TypeVar("Record", Observation, Outcome)
Comparable = tuple[object, ...]
"""A step in a form that compares by value (a NaN equals itself); state keys have their own rules."""


@dataclass(frozen=True, kw_only=True)
class RecordedRollout:
    """A finished rollout: its actions and outcomes."""

    task: Task
    first: Observation
    actions: tuple[str, ...]
    outcomes: tuple[Outcome, ...]

    @property
    def observations(self) -> tuple[Observation, ...]:
        return (self.first, *(outcome.observation for outcome in self.outcomes))

    @property
    def transcript(self) -> list[Comparable]:
        """Everything that was shown, without state keys."""
        return [to_comparable(self.first), *(outcome_to_comparable(outcome) for outcome in self.outcomes)]

    @property
    def keys(self) -> list[Hashable]:
        return [plain_records.to_plain_key(observation.state_key) for observation in self.observations]

    def break_rule(self, what: str) -> BrokenRuleError:
        return BrokenRuleError(f"task {self.task.id}: {what}")

    def expect(self, transcript: Sequence[Comparable], trouble: str, *, start: int = 0) -> None:
        """Raise if a transcript differs from the rollout's own from step `start` on."""
        if transcript == (expected := self.transcript[start:]):
            return
        difference = f"one has {len(transcript)} steps, the other {len(expected)}"
        for step, (shown, step_expected) in enumerate(zip(transcript, expected, strict=False)):
            if shown != step_expected:
                first, other = next((a, b) for a, b in zip(shown, step_expected, strict=False) if a != b)
                difference = f"after {step} steps: {first!r} and {other!r}"
                break
        raise self.break_rule(f"{trouble}, {difference}")


@dataclass(frozen=True, kw_only=True)
class CheckedEnvironment:
    """The environment under check, the tasks it is checked on, and random rollouts at them."""

    part: EnvironmentPart
    tasks: tuple[Task, ...]
    seed: int

    @cached_property
    def rollouts(self) -> list[RecordedRollout]:
        return [
            self.play_randomly(task, Draws("checker", self.seed, task.id, number))
            for task in self.tasks
            for number in range(2)
        ]

    @cached_property
    def unrepeatable(self) -> str:
        """The first difference when the same actions are repeated; empty = none."""
        twin = CheckedEnvironment(part=copy.deepcopy(self.part), tasks=self.tasks, seed=self.seed)
        for rollout in self.rollouts:
            for again in (self.replay(rollout.task, rollout.actions), twin.replay(rollout.task, rollout.actions)):
                try:
                    rollout.expect(again.transcript, "the same actions gave two transcripts")
                except BrokenRuleError as difference:
                    return str(difference)
        return ""

    def require_repeatable(self) -> None:
        if self.unrepeatable:
            raise NotTestedError("the environment is not repeatable, so rollouts cannot be compared")

    def require_keys(self) -> None:
        keys = [seen.state_key for _, seen in iterate_observations(self)]
        if all(key is None for key in keys):
            raise NotTestedError("every state_key is None: steps are compared only by task")
        try:
            for key in keys:
                plain_records.to_plain_key(key)
        except EnvironmentFault:
            raise NotTestedError("some keys cannot be stored, so they cannot be compared") from None

    def play_randomly(self, task: Task, draws: Draws) -> RecordedRollout:
        environment = self.part.open(task)
        first = _require_type(environment.observe(), Observation, "observe")
        actions: list[str] = []
        outcomes: list[Outcome] = []
        seen = first
        while len(actions) < self.part.max_steps and not (outcomes and outcomes[-1].ended):
            actions.append(self._choose(environment, seen, draws))
            outcomes.append(_require_type(environment.act(actions[-1]), Outcome, "act"))
            seen = outcomes[-1].observation
        return RecordedRollout(task=task, first=first, actions=tuple(actions), outcomes=tuple(outcomes))

    def replay(self, task: Task, actions: Sequence[str]) -> RecordedRollout:
        environment = self.part.open(task)
        first, outcomes = environment.observe(), list[Outcome]()
        for action in actions:
            if outcomes and outcomes[-1].ended:
                break
            outcomes.append(environment.act(action))
        return RecordedRollout(task=task, first=first, actions=tuple(actions), outcomes=tuple(outcomes))

    def open_after(self, task: Task, actions: Sequence[str]) -> Environment:
        environment = self.part.open(task)
        for action in actions:
            environment.act(action)
        return environment

    def play_by_expert(self, task: Task) -> Iterator[tuple[str, Outcome]]:
        environment = self.part.open(task)
        for _ in range(self.part.max_steps):
            action = environment.expert() if isinstance(environment, Expert) else None
            if action is None:
                return
            outcome = environment.act(action)
            yield action, outcome
            if outcome.ended:
                return

    def _choose(self, environment: Environment, seen: Observation, draws: Draws) -> str:
        by_expert = draws.below(1000) < 1000 * EXPERT_SHARE
        listed = seen.admissible if isinstance(seen.admissible, tuple | list) else ()
        if isinstance(environment, Expert) and (by_expert or not listed):
            action = environment.expert()
            if isinstance(action, str):
                return action
        if listed:
            return draws.pick(listed)
        shown = tuple(split_words(f"{seen.goal} {seen.text}")) or NONSENSE
        return draws.pick(ask_vocabulary(self.part) if has_vocabulary(self.part) else shown)


def _require_type(record: object, wanted: type[Record], method: str) -> Record:
    if not isinstance(record, wanted):
        raise BrokenRuleError(f"`{method}` returned a {type(record).__name__}; return an {wanted.__name__}")
    return record


def iterate_observations(subject: CheckedEnvironment) -> Iterator[tuple[RecordedRollout, Observation]]:
    return ((rollout, seen) for rollout in subject.rollouts for seen in rollout.observations)


def to_comparable(observation: Observation) -> Comparable:
    return (observation.text, observation.admissible, observation.goal)


def outcome_to_comparable(outcome: Outcome) -> Comparable:
    ending = (outcome.terminated, outcome.truncated, outcome.accepted, outcome.success)
    return (*to_comparable(outcome.observation), repr(outcome.reward), *ending)


# The rules. Each docstring says why the rule matters.
#
# A rule returns what it found. It raises `BrokenRuleError` with the problem, or `NotTestedError` if there is nothing to
# test.

MAX_ACTIONS_TRIED = 200
"""Admissible actions to try at most; each needs a replay."""
MIN_STEPS_PER_SECOND = 5


def opens_and_plays(subject: CheckedEnvironment) -> str:
    """The loop needs an Observation from `observe` and an Outcome from `act`."""
    if not isinstance(subject.part.instruction(), str) or "\n" in subject.part.instruction():
        raise BrokenRuleError("`instruction()` is not one line of text")
    steps = sum(len(rollout.actions) for rollout in subject.rollouts)
    return f"{len(subject.rollouts)} rollouts of {len(subject.tasks)} tasks, {steps} steps"


def fields_have_their_types(subject: CheckedEnvironment) -> str:
    """Everything from an environment is recorded and compared: text is text, flags are True or False, listed actions
    are a tuple of texts. A value that cannot be recorded ends the rollout with an error.
    """
    for rollout in subject.rollouts:
        try:
            plain_records.to_plain_observation(replace(rollout.first, state_key=None))
            for outcome in rollout.outcomes:
                seen = outcome.observation
                without_key = replace(seen, state_key=None) if isinstance(seen, Observation) else seen
                plain_records.to_plain_outcome(replace(outcome, observation=without_key, reward=0.0))
            environment = subject.part.open(rollout.task)
            plain_records.to_plain_advice(environment.expert() if isinstance(environment, Expert) else None)
        except EnvironmentFault as fault:
            raise rollout.break_rule(f"{fault}") from None
    return f"{sum(len(rollout.outcomes) for rollout in subject.rollouts)} outcomes"


def is_repeatable(subject: CheckedEnvironment) -> str:
    """The rollouts of a group are compared, so they must run in equal environments. If the same task can begin or
    continue differently after the same actions, advantages reward luck, and no run is reproducible.
    """
    if subject.unrepeatable:
        raise BrokenRuleError(subject.unrepeatable)
    return f"{len(subject.rollouts)} rollouts run three times"


def observe_has_no_effect(subject: CheckedEnvironment) -> str:
    """The loop, the prompt history and the viewer all observe. If observing changes the environment, it changes the
    rollout.
    """
    subject.require_repeatable()
    for rollout in subject.rollouts:
        environment = subject.part.open(rollout.task)
        transcript = [to_comparable(environment.observe())]
        for action in rollout.actions:
            if to_comparable(environment.observe()) != to_comparable(environment.observe()):
                raise rollout.break_rule("two calls of observe() gave different observations")
            transcript.append(outcome_to_comparable(environment.act(action)))
        rollout.expect(transcript, "observing in between changed what happened")
    return f"{len(subject.rollouts)} rollouts with extra observations"


def is_isolated(subject: CheckedEnvironment) -> str:
    """Many environments run in one process. If one of them draws from a process-wide generator, or seeds it, it changes
    the other environments and the trainer. Then results depend on what else was running.
    """
    subject.require_repeatable()
    rollouts = subject.rollouts
    for pair in zip(rollouts, [*rollouts[2:], *rollouts[:2]], strict=True):
        environments = [subject.part.open(rollout.task) for rollout in pair]
        transcripts = [[to_comparable(environment.observe())] for environment in environments]
        for step in range(max(len(rollout.actions) for rollout in pair)):
            for rollout, environment, transcript in zip(pair, environments, transcripts, strict=True):
                if step < len(rollout.actions):
                    transcript.append(outcome_to_comparable(environment.act(rollout.actions[step])))
        for rollout, transcript in zip(pair, transcripts, strict=True):
            rollout.expect(transcript, "the transcript changed while another environment was in use")
    if _moves_process_wide_random(subject):
        raise BrokenRuleError(
            "a rollout used the process-wide random generator; give the environment its own generator"
        )
    return f"{len(rollouts)} pairs of environments run in turn"


def _moves_process_wide_random(subject: CheckedEnvironment) -> bool:
    states = random.getstate(), np.random.get_state()
    try:
        # A state that no environment sets: one that reseeds at each opening would not be noticed from its own.
        random.seed("checker")
        np.random.seed(1_234_567)
        before = random.getstate(), np.random.random(3).tolist()
        np.random.seed(1_234_567)
        subject.replay(subject.rollouts[0].task, subject.rollouts[0].actions)
        return before != (random.getstate(), np.random.random(3).tolist())
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])


def ends_in_time(subject: CheckedEnvironment) -> str:
    """A rollout that never ends blocks its group. At max_steps an environment is terminated or truncated. The two
    differ because a truncated rollout says nothing about what comes next.
    """
    limit, truncated = subject.part.max_steps, 0
    for rollout in subject.rollouts:
        if not rollout.outcomes[-1].ended:
            raise rollout.break_rule(f"after {limit} steps (max_steps) it is neither terminated nor truncated")
        truncated += rollout.outcomes[-1].truncated
    # A rollout that gets nowhere ends at the limit too; random rollouts may all reach an end before it.
    environment = subject.part.open(subject.tasks[0])
    try:
        ends = any(environment.act(NONSENSE[0]).ended for _ in range(limit))
    except Exception:  # nonsense has a rule of its own
        ends = True
    if not ends:
        raise BrokenRuleError(f"after {limit} invalid actions (max_steps) it continues")
    return f"{truncated} rollouts truncated at {limit} steps, {len(subject.rollouts) - truncated} terminated"


def success_is_told_at_the_end(subject: CheckedEnvironment) -> str:
    """Evaluation counts successes, not rewards: `success` is None until the rollout ends, then True or False."""
    for rollout in subject.rollouts:
        for step, outcome in enumerate(rollout.outcomes):
            if outcome.ended and outcome.success is None:
                raise rollout.break_rule("the rollout ended, but `success` is None")
            if not outcome.ended and outcome.success is not None:
                raise rollout.break_rule(f"`success` is {outcome.success} at step {step}, before the end")
    if not any(rollout.outcomes[-1].ended for rollout in subject.rollouts):
        raise NotTestedError("no rollout ended")
    successes = sum(bool(rollout.outcomes[-1].success) for rollout in subject.rollouts)
    return f"{successes} of {len(subject.rollouts)} random rollouts succeeded"


def refuses_to_act_after_the_end(subject: CheckedEnvironment) -> str:
    """If a loop acts after the end of a rollout, it trains on steps that never counted. An error shows this at once."""
    subject.require_repeatable()
    checked = 0
    for rollout in subject.rollouts:
        if not rollout.outcomes[-1].ended:
            continue
        environment = subject.open_after(rollout.task, rollout.actions)
        checked += 1
        try:
            environment.act(rollout.actions[-1])
        except Exception:  # any exception will do: the rule is that it refuses
            continue
        raise rollout.break_rule("it acted after its end; raise an error")
    if not checked:
        raise NotTestedError("no rollout ended")
    return f"{checked} ended rollouts"


def admissible_actions_are_accepted(subject: CheckedEnvironment) -> str:
    """An agent that chooses a listed action must not be punished for it."""
    subject.require_repeatable()
    tried = 0
    for rollout in subject.rollouts:
        step = len(rollout.actions) // 2
        admissible = rollout.observations[step].admissible or ()
        for action in admissible[: MAX_ACTIONS_TRIED - tried]:
            outcome = subject.open_after(rollout.task, rollout.actions[:step]).act(action)
            tried += 1
            if not outcome.accepted:
                raise rollout.break_rule(f"{action!r} is listed after {step} steps, but it is not accepted")
    if not tried:
        raise NotTestedError("no actions are listed")
    return f"{tried} listed actions"


def nonsense_is_refused(subject: CheckedEnvironment) -> str:
    """A language model can write any text. An action that cannot be understood is a step with `accepted` False and
    never an exception; otherwise one odd sample ends the rollout with an error.
    """
    task = subject.tasks[0]
    for action in NONSENSE:
        try:
            outcome = subject.part.open(task).act(action)
        except Exception as error:
            raise BrokenRuleError(f"the action {action[:40]!r} raised {type(error).__name__}: {error}") from None
        if outcome.accepted:
            raise BrokenRuleError(f"the action {action[:40]!r} counts as accepted; return accepted=False")
    return f"{len(NONSENSE)} nonsense actions"


def rewards_are_finite(subject: CheckedEnvironment) -> str:
    """One NaN in a group makes the advantages of all its members NaN."""
    rewards = [outcome.reward for rollout in subject.rollouts for outcome in rollout.outcomes]
    try:
        plain = [plain_records.to_plain_reward(reward) for reward in rewards]
    except EnvironmentFault as fault:
        raise BrokenRuleError(str(fault)) from None
    if not plain:
        raise NotTestedError("no step was taken")
    return f"between {min(plain)} and {max(plain)}"


def fork_is_exact(subject: CheckedEnvironment) -> str:
    """Branching methods compare continuations from one state. A fork with other random draws is another state."""
    for rollout, middle, _, fork in _fork_rollouts(subject):
        rest = [outcome_to_comparable(fork.act(action)) for action in rollout.actions[middle:]]
        rollout.expect(rest, f"a fork after {middle} steps gave another transcript", start=middle + 1)
    return f"{len(subject.rollouts)} forks"


def fork_is_independent(subject: CheckedEnvironment) -> str:
    """If a fork shares lists with its original, exploring one branch corrupts the others."""
    for rollout, middle, environment, fork in _fork_rollouts(subject):
        before = to_comparable(environment.observe())
        for action in rollout.actions[middle:]:
            fork.act(action)
        if to_comparable(environment.observe()) != before:
            raise rollout.break_rule("acting in a fork changed what the original shows")
        rest = [outcome_to_comparable(environment.act(action)) for action in rollout.actions[middle:]]
        rollout.expect(rest, "acting in a fork changed the original", start=middle + 1)
    return f"{len(subject.rollouts)} forks"


def _fork_rollouts(subject: CheckedEnvironment) -> Iterator[tuple[RecordedRollout, int, Environment, Environment]]:
    """Each rollout, played up to its middle and forked there."""
    if not isinstance(subject.part.open(subject.tasks[0]), Forkable):
        raise NotTestedError("the environment has no `fork`")
    subject.require_repeatable()
    for rollout in subject.rollouts:
        middle = len(rollout.actions) // 2
        environment = subject.open_after(rollout.task, rollout.actions[:middle])
        assert isinstance(environment, Forkable)
        yield rollout, middle, environment, environment.fork()


def expert_succeeds(subject: CheckedEnvironment) -> str:
    """Warm starts and demonstrations use the expert; an expert that fails teaches failure."""
    if not isinstance(subject.part.open(subject.tasks[0]), Expert):
        raise NotTestedError("the environment has no `expert`")
    lengths = []
    for task in subject.tasks:
        steps_played = list(subject.play_by_expert(task))
        if any(not outcome.accepted for _, outcome in steps_played):
            raise BrokenRuleError(f"task {task.id}: the expert took an invalid action")
        if not (steps_played and steps_played[-1][1].success):
            raise BrokenRuleError(f"task {task.id}: the expert did not succeed in {len(steps_played)} steps")
        lengths.append(len(steps_played))
    return f"{len(lengths)} of {len(lengths)} tasks, in {min(lengths)} to {max(lengths)} steps"


def task_sets_are_disjoint(subject: CheckedEnvironment) -> str:
    """If a task is in the train set and in the test set, the test measures memorization."""
    task_sets = {split: ask_task_set(subject.part, split) for split in SPLITS}
    if sum(map(bool, task_sets.values())) < 2:
        raise NotTestedError("only one split has tasks")
    try:
        check_disjoint(task_sets)
    except GroupwiseError as error:
        raise BrokenRuleError(str(error)) from None
    return ", ".join(f"{len(task_sets[split])} {split}" for split in SPLITS)


def task_sets_are_fixed(subject: CheckedEnvironment) -> str:
    """Two results are comparable only if they use the same tasks."""
    for split in SPLITS:
        first = task_set_hash(subject.part.task_set(split))
        again, twin = (
            task_set_hash(subject.part.task_set(split)),
            task_set_hash(copy.deepcopy(subject.part).task_set(split)),
        )
        if not first == again == twin:
            raise BrokenRuleError(f"the {split} task set changes between two calls; it must always have the same tasks")
    return f"test task set {task_set_hash(subject.part.task_set('test'))[:12]}"


def task_ids_come_from_content(subject: CheckedEnvironment) -> str:
    """Ids join the records of different runs. An id that is a counter or random joins the wrong records."""
    for task in subject.tasks:
        remade = Task.create(env=task.env, split=task.split, seed=task.seed, payload=task.payload)
        if remade.id != task.id:
            raise BrokenRuleError(
                f"task {task.id}: from its content the id must be {remade.id}; make tasks with Task.create"
            )
    return f"{len(subject.tasks)} ids"


def vocabulary_covers_every_word(subject: CheckedEnvironment) -> str:
    """The tokenizer of the tiny model is made from the vocabulary; the model cannot read or write any other word."""
    if not has_vocabulary(subject.part):
        raise NotTestedError("there is no vocabulary(); only models made from scratch need it")
    known = set(ask_vocabulary(subject.part))
    texts = [ask_instruction(subject.part)]
    for _, seen in iterate_observations(subject):
        texts += [seen.text, seen.goal, *(seen.admissible or ())]
    texts += [action for task in subject.tasks for action, _ in subject.play_by_expert(task)]
    unknown = sorted({word for text in texts for word in split_words(text)} - known)
    if unknown:
        raise BrokenRuleError(f"vocabulary() lacks these words: {', '.join(unknown[:10])}")
    return f"{len(known)} words"


def acts_fast_enough(subject: CheckedEnvironment) -> str:
    """A model samples at most a few thousand actions per second; a slower environment makes it wait."""
    steps, started = 0, time.perf_counter()
    while steps == 0 or (time.perf_counter() - started < 0.2 and steps < 5000):
        for rollout in subject.rollouts:
            steps += len(subject.replay(rollout.task, rollout.actions).outcomes)
    rate = steps / (time.perf_counter() - started)
    if rate < MIN_STEPS_PER_SECOND:
        raise BrokenRuleError(f"{rate:.1f} steps per second")
    return f"{rate:,.0f} steps per second, including opening"


# The conformance suite's rules for state keys, which decide what steps are compared with.

MIN_REVISITS = 5
"""How often a situation must occur again before it is used to judge the key."""
MIN_COUNTED_STEPS = 5
"""How long a rollout must be before a number that grows with it counts as a counter."""
MAX_RETURNS_TRIED = 60
"""Pairs of actions to try at most; each needs a replay of two steps."""
STAMP = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d")


def state_key_is_hashable(subject: CheckedEnvironment) -> str:
    """Steps are grouped by their key, so it must work as a dictionary key."""
    keys = 0
    for rollout, seen in iterate_observations(subject):
        try:
            hash(seen.state_key)
        except Exception as error:  # a foreign __hash__ may raise anything
            raise rollout.break_rule(f"{quote_error(error)}; use text or a tuple of texts and numbers") from None
        keys += seen.state_key is not None
    if not keys:
        raise NotTestedError("every state_key is None: steps are compared only by task")
    return f"{keys} keys"


def state_key_can_be_written(subject: CheckedEnvironment) -> str:
    """Keys are stored in the journal and sent between processes. A key that cannot be stored ends its rollout with an
    error: use text, finite numbers, True, False, None, or tuples of these.
    """
    keys = 0
    for rollout, seen in iterate_observations(subject):
        try:
            hash(seen.state_key)
        except Exception:
            raise NotTestedError("some keys are not hashable, which is another rule") from None
        try:
            keys += plain_records.to_plain_key(seen.state_key) is not None
        except EnvironmentFault as fault:
            raise rollout.break_rule(f"{fault}") from None
    if not keys:
        raise NotTestedError("every state_key is None: steps are compared only by task")
    return f"{keys} keys"


def state_key_is_equal_for_equal_situations(subject: CheckedEnvironment) -> str:
    """Step-level advantages compare steps with equal keys. A key that contains an address, a random number or a time is
    never equal. Then the method compares only whole rollouts, without any message.
    """
    subject.require_repeatable()
    subject.require_keys()
    difference = _find_unequal_keys(subject)
    if difference:
        raise BrokenRuleError(difference)
    return f"{sum(len(rollout.keys) for rollout in subject.rollouts)} keys seen twice"


def _find_unequal_keys(subject: CheckedEnvironment) -> str:
    """The first key that differs when a rollout is repeated; empty = none."""
    for rollout in subject.rollouts:
        again = subject.replay(rollout.task, rollout.actions)
        for step, (key, key_again) in enumerate(zip(rollout.keys, again.keys, strict=True)):
            if key != key_again:
                return f"task {rollout.task.id}: after the same {step} actions the keys are {key!r} and {key_again!r}"
    return ""


def state_key_has_no_counter_or_clock(subject: CheckedEnvironment) -> str:
    """If a key contains a step number or a time, every visit of a situation looks new, and nothing is ever compared."""
    subject.require_keys()
    for rollout in subject.rollouts:
        for key in rollout.keys:
            if STAMP.search(str(key)) or any(_is_now(int(run)) for run in re.findall(r"\d{10,20}", str(key))):
                raise rollout.break_rule(f"the key {key!r} contains a time")
    revisits = agreements = 0
    ways = {
        "": _find_revisits(subject),
        " after a step with an invalid action": _try_detours(subject),
        " after two actions that lead away and back": _try_returns(subject),
    }
    for way, meetings in ways.items():
        agreed = sum(meetings)
        if len(meetings) >= MIN_REVISITS and not agreed:
            raise BrokenRuleError(
                f"the same text and actions occurred again {len(meetings)} times{way}, each time with a new key"
            )
        revisits, agreements = revisits + len(meetings), agreements + agreed
    if agreements:
        return f"{revisits} situations occurred again, {agreements} of them with a key seen before"
    long = [rollout.keys for rollout in subject.rollouts if len(rollout.keys) >= MIN_COUNTED_STEPS]
    if len(long) >= 2 and all(_is_counter(keys) for keys in long):
        raise BrokenRuleError(f"a number in the key counts the steps: {', '.join(map(repr, long[0][:3]))}")
    came = f"{revisits}, each time with a new key" if revisits else "none"
    raise NotTestedError(f"too few situations occurred again to detect a counter: {came}")


def _find_revisits(subject: CheckedEnvironment) -> list[bool]:
    """For each situation that occurs again within a rollout: whether it has a key that it had before."""
    meetings: list[bool] = []
    for rollout in subject.rollouts:
        keys_of: dict[object, set[Hashable]] = defaultdict(set)
        for seen, key in zip(rollout.observations, rollout.keys, strict=True):
            known = keys_of[to_comparable(seen)]
            meetings += [key in known] if known else []
            known.add(key)
    return meetings


def _try_detours(subject: CheckedEnvironment) -> list[bool]:
    """For each situation that is reached again after one invalid action: whether it has the same key."""
    meetings: list[bool] = []
    if subject.unrepeatable or _find_unequal_keys(subject):  # rollouts cannot be compared with one another
        return meetings
    for rollout in subject.rollouts:
        try:
            longer = subject.replay(rollout.task, (NONSENSE[0], *rollout.actions))
        except Exception:  # nonsense has a rule of its own
            continue
        pairs = zip(rollout.observations, rollout.keys, longer.observations[1:], longer.keys[1:], strict=False)
        meetings += [key == later for seen, key, again, later in pairs if to_comparable(seen) == to_comparable(again)]
    return meetings


def _try_returns(subject: CheckedEnvironment) -> list[bool]:
    """For each situation that two actions lead away from and back to: whether it has the same key."""
    meetings: list[bool] = []
    tried = 0
    for task in subject.tasks:
        first = subject.replay(task, ())
        for away in first.first.admissible or ():
            there = subject.replay(task, (away,))
            for back in () if there.outcomes[0].ended else there.outcomes[0].observation.admissible or ():
                tried += 1
                if tried > MAX_RETURNS_TRIED:
                    return meetings
                home = subject.replay(task, (away, back))
                if to_comparable(home.observations[-1]) == to_comparable(first.first) and not home.outcomes[-1].ended:
                    meetings.append(home.keys[-1] == home.keys[0])
    return meetings


def _is_now(number: int) -> bool:
    seconds = number / 10.0 ** max(0, len(str(number)) - 10)
    return abs(seconds - time.time()) < 86_400 * 2


def _is_counter(keys: list[Hashable]) -> bool:
    """Whether some number in the keys goes up, or down, by one at every step."""
    runs = [[int(run) for run in re.findall(r"\d+", str(key))] for key in keys]
    width = min(map(len, runs))
    return any(
        all(run[place] - runs[0][place] == sign * step for step, run in enumerate(runs))
        for place in range(width)
        for sign in (1, -1)
    )


NUM_TASKS = 12
"""Training tasks that a check runs by default."""

RULES: tuple[Callable[[CheckedEnvironment], str], ...] = (
    opens_and_plays,
    fields_have_their_types,
    is_repeatable,
    observe_has_no_effect,
    is_isolated,
    ends_in_time,
    success_is_told_at_the_end,
    refuses_to_act_after_the_end,
    state_key_is_hashable,
    state_key_can_be_written,
    state_key_is_equal_for_equal_situations,
    state_key_has_no_counter_or_clock,
    admissible_actions_are_accepted,
    nonsense_is_refused,
    rewards_are_finite,
    fork_is_exact,
    fork_is_independent,
    expert_succeeds,
    task_sets_are_disjoint,
    task_sets_are_fixed,
    task_ids_come_from_content,
    vocabulary_covers_every_word,
    acts_fast_enough,
)
"""All rules, in the order they are checked. If the first one is broken, the rest are not checked."""


def check_environment(
    part: EnvironmentPart, *, tasks: Sequence[Task] | int = NUM_TASKS, seed: int = 0
) -> list[RuleResult]:
    """Check an environment against every rule. If it cannot be opened (its package is missing), raise its ConfigError.

    `tasks` are the tasks to run, or how many training tasks to draw; the seed draws tasks and actions.
    """
    results: list[RuleResult] = []
    subject = cache(lambda: CheckedEnvironment(part=part, tasks=_choose_tasks(part, tasks, seed), seed=seed))
    for rule in RULES:
        if results and results[0].status == "broken":
            results.append(describe_result(rule, "not tested", "the environment could not be run"))
        else:  # a ConfigError of the first rule means a missing package, data or field: there is nothing to check
            results.append(try_rule(rule, subject, passing=() if results else ConfigError))
    return results


def _choose_tasks(part: EnvironmentPart, tasks: Sequence[Task] | int, seed: int) -> tuple[Task, ...]:
    if not isinstance(tasks, int):
        return tuple(tasks)
    task_set = ask_task_set(part, "train")
    if not task_set:
        raise BrokenRuleError("the train task set is empty")
    return tuple(Draws("checker", seed).sample(task_set, min(tasks, len(task_set))))
