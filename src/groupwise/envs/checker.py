"""The conformance suite for environments: run it on your own before you train in it.

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
from groupwise.envs.environment import Environment, EnvironmentPart, Expert, Forkable, Observation, Outcome
from groupwise.envs.kit.draws import Draws
from groupwise.envs.kit.panel import SPLITS, check_disjoint, panel_hash
from groupwise.envs.kit.words import split_words
from groupwise.envs.mixture import has_vocabulary
from groupwise.envs.part_queries import ask_instruction, ask_panel, ask_vocabulary
from groupwise.envs.plain_records import (
    to_plain_advice,
    to_plain_key,
    to_plain_observation,
    to_plain_outcome,
    to_plain_reward,
)
from groupwise.system.errors import ConfigError, EnvironmentFault, GroupwiseError
from groupwise.system.quoted_errors import (
    BrokenRuleError,
    NotTestedError,
    RuleResult,
    describe_result,
    quote_error,
    try_rule,
)

# The environment under check, and attempts at its tasks by random actions, recorded so that they can be replayed.

EXPERT_SHARE = 0.3
"""How often a random attempt does what the expert would, so that it also gets somewhere."""

NONSENSE = ("qwxyz frobnicate", "", "   ", "go to", "ß🙂\n\t", "a" * 10_000)
"""Actions that no environment understands, or should choke on."""

Record = TypeVar("Record", Observation, Outcome)
Comparable = tuple[object, ...]
"""What a step showed, in a form that compares by value (a NaN equals itself); state keys have rules of their own."""


@dataclass(frozen=True, kw_only=True)
class RecordedAttempt:
    """A played attempt: the actions, and what they brought."""

    task: Task
    first: Observation
    actions: tuple[str, ...]
    outcomes: tuple[Outcome, ...]

    @property
    def observations(self) -> tuple[Observation, ...]:
        return (self.first, *(outcome.observation for outcome in self.outcomes))

    @property
    def transcript(self) -> list[Comparable]:
        """Everything that happened, state keys aside."""
        return [to_comparable(self.first), *(outcome_to_comparable(outcome) for outcome in self.outcomes)]

    @property
    def keys(self) -> list[Hashable]:
        """The state keys, made plain as the loop does."""
        return [to_plain_key(observation.state_key) for observation in self.observations]

    def break_rule(self, what: str) -> BrokenRuleError:
        return BrokenRuleError(f"task {self.task.id}: {what}")

    def expect(self, transcript: Sequence[Comparable], trouble: str, *, start: int = 0) -> None:
        """Raise where a transcript is not the attempt's own, from a step on."""
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
    """The environment under check, the tasks it is checked on, and random attempts at them."""

    part: EnvironmentPart
    tasks: tuple[Task, ...]
    seed: int

    @cached_property
    def attempts(self) -> list[RecordedAttempt]:
        return [
            self.play_randomly(task, Draws("checker", self.seed, task.id, number))
            for task in self.tasks
            for number in range(2)
        ]

    @cached_property
    def unrepeatable(self) -> str:
        """Where an attempt, played again with the same actions, went another way; empty = nowhere."""
        twin = CheckedEnvironment(part=copy.deepcopy(self.part), tasks=self.tasks, seed=self.seed)
        for attempt in self.attempts:
            for again in (self.replay(attempt.task, attempt.actions), twin.replay(attempt.task, attempt.actions)):
                try:
                    attempt.expect(again.transcript, "the same actions gave two transcripts")
                except BrokenRuleError as difference:
                    return str(difference)
        return ""

    def require_repeatable(self) -> None:
        """Leave a rule that compares attempts, where attempts cannot be compared."""
        if self.unrepeatable:
            raise NotTestedError("the environment is not repeatable, so attempts cannot be compared")

    def require_keys(self) -> None:
        """Leave a rule about keys where there are none, or none that can be compared."""
        keys = [seen.state_key for _, seen in iterate_observations(self)]
        if all(key is None for key in keys):
            raise NotTestedError("every state_key is None: steps are compared by task alone")
        try:
            for key in keys:
                to_plain_key(key)
        except EnvironmentFault:
            raise NotTestedError("there are keys that cannot be written, so they cannot be compared") from None

    def play_randomly(self, task: Task, draws: Draws) -> RecordedAttempt:
        """Play a task by random actions, and now and then the expert's."""
        environment = self.part.open(task)
        first = _require_type(environment.observe(), Observation, "observe")
        actions: list[str] = []
        outcomes: list[Outcome] = []
        seen = first
        while len(actions) < self.part.max_steps and not (outcomes and outcomes[-1].ended):
            actions.append(self._choose(environment, seen, draws))
            outcomes.append(_require_type(environment.act(actions[-1]), Outcome, "act"))
            seen = outcomes[-1].observation
        return RecordedAttempt(task=task, first=first, actions=tuple(actions), outcomes=tuple(outcomes))

    def replay(self, task: Task, actions: Sequence[str]) -> RecordedAttempt:
        environment = self.part.open(task)
        first, outcomes = environment.observe(), list[Outcome]()
        for action in actions:
            if outcomes and outcomes[-1].ended:
                break
            outcomes.append(environment.act(action))
        return RecordedAttempt(task=task, first=first, actions=tuple(actions), outcomes=tuple(outcomes))

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


def iterate_observations(subject: CheckedEnvironment) -> Iterator[tuple[RecordedAttempt, Observation]]:
    """Everything that was shown in the random attempts, each with its attempt."""
    return ((attempt, seen) for attempt in subject.attempts for seen in attempt.observations)


def to_comparable(observation: Observation) -> Comparable:
    """What an observation shows, in a form that compares; the state key aside."""
    return (observation.text, observation.admissible, observation.goal)


def outcome_to_comparable(outcome: Outcome) -> Comparable:
    """What an outcome shows, in a form that compares; the state key aside."""
    ending = (outcome.terminated, outcome.truncated, outcome.accepted, outcome.success)
    return (*to_comparable(outcome.observation), repr(outcome.reward), *ending)


# The rules of the conformance suite for environments. Each one's docstring says why it matters, to whoever breaks it.
#
# A rule returns what it found; it raises `BrokenRuleError` with what is wrong, or `NotTestedError` where it could not
# be tried, or there is nothing to try it on.

MAX_ACTIONS_TRIED = 200
"""How many admissible actions are tried; each needs a replay."""
MIN_STEPS_PER_SECOND = 5


def opens_and_plays(subject: CheckedEnvironment) -> str:
    """The loop relies on `observe` returning an Observation and `act` an Outcome."""
    if not isinstance(subject.part.instruction(), str) or "\n" in subject.part.instruction():
        raise BrokenRuleError("`instruction()` is not one line of text")
    steps = sum(len(attempt.actions) for attempt in subject.attempts)
    return f"{len(subject.attempts)} attempts at {len(subject.tasks)} tasks, {steps} steps"


def fields_have_their_types(subject: CheckedEnvironment) -> str:
    """Everything an environment says is written down and compared: text is text, flags are True or False, listed
    actions a tuple of texts. What cannot be written ends the attempt as a fault.
    """
    for attempt in subject.attempts:
        try:
            to_plain_observation(replace(attempt.first, state_key=None))
            for outcome in attempt.outcomes:
                seen = outcome.observation
                without_key = replace(seen, state_key=None) if isinstance(seen, Observation) else seen
                to_plain_outcome(replace(outcome, observation=without_key, reward=0.0))
            environment = subject.part.open(attempt.task)
            to_plain_advice(environment.expert() if isinstance(environment, Expert) else None)
        except EnvironmentFault as fault:
            raise attempt.break_rule(f"{fault}") from None
    return f"{sum(len(attempt.outcomes) for attempt in subject.attempts)} outcomes"


def is_repeatable(subject: CheckedEnvironment) -> str:
    """Attempts of a group are compared because they face one world. If the same task can begin or go on differently
    after the same actions, credit rewards luck, and no run can be repeated.
    """
    if subject.unrepeatable:
        raise BrokenRuleError(subject.unrepeatable)
    return f"{len(subject.attempts)} attempts played three times"


def observe_has_no_effect(subject: CheckedEnvironment) -> str:
    """The loop, the memory and the viewer all look; if looking changes the world, they change the attempt."""
    subject.require_repeatable()
    for attempt in subject.attempts:
        environment = subject.part.open(attempt.task)
        transcript = [to_comparable(environment.observe())]
        for action in attempt.actions:
            if to_comparable(environment.observe()) != to_comparable(environment.observe()):
                raise attempt.break_rule("observing twice showed two different things")
            transcript.append(outcome_to_comparable(environment.act(action)))
        attempt.expect(transcript, "observing in between changed what happened")
    return f"{len(subject.attempts)} attempts with extra observations"


def is_isolated(subject: CheckedEnvironment) -> str:
    """Many environments live in one process. One that draws from, or seeds, a process-wide generator changes its
    neighbours and the trainer, and a result then depends on who else was running.
    """
    subject.require_repeatable()
    attempts = subject.attempts
    for pair in zip(attempts, [*attempts[2:], *attempts[:2]], strict=True):
        environments = [subject.part.open(attempt.task) for attempt in pair]
        transcripts = [[to_comparable(environment.observe())] for environment in environments]
        for step in range(max(len(attempt.actions) for attempt in pair)):
            for attempt, environment, transcript in zip(pair, environments, transcripts, strict=True):
                if step < len(attempt.actions):
                    transcript.append(outcome_to_comparable(environment.act(attempt.actions[step])))
        for attempt, transcript in zip(pair, transcripts, strict=True):
            attempt.expect(transcript, "it went differently while another environment was in use")
    if _moves_process_wide_random(subject):
        raise BrokenRuleError("playing moved the process-wide random generator; keep a generator in the environment")
    return f"{len(attempts)} pairs of environments played in turn"


def _moves_process_wide_random(subject: CheckedEnvironment) -> bool:
    states = random.getstate(), np.random.get_state()
    try:
        # A state that no environment sets: one that reseeds at each opening would not be noticed from its own.
        random.seed("checker")
        np.random.seed(1_234_567)
        before = random.getstate(), np.random.random(3).tolist()
        np.random.seed(1_234_567)
        subject.replay(subject.attempts[0].task, subject.attempts[0].actions)
        return before != (random.getstate(), np.random.random(3).tolist())
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])


def ends_in_time(subject: CheckedEnvironment) -> str:
    """An attempt that never ends stalls its group. At max_steps an environment is terminated or truncated; the two are
    told apart because a cut-off says nothing about what would have come.
    """
    limit, truncated = subject.part.max_steps, 0
    for attempt in subject.attempts:
        if not attempt.outcomes[-1].ended:
            raise attempt.break_rule(f"after {limit} steps, max_steps, it is neither terminated nor truncated")
        truncated += attempt.outcomes[-1].truncated
    # An attempt that gets nowhere ends at the limit too; random attempts may all reach an end before it.
    environment = subject.part.open(subject.tasks[0])
    try:
        ends = any(environment.act(NONSENSE[0]).ended for _ in range(limit))
    except Exception:  # nonsense has a rule of its own
        ends = True
    if not ends:
        raise BrokenRuleError(f"after {limit} actions that it did not understand, max_steps, it goes on")
    return f"{truncated} attempts truncated at {limit} steps, {len(subject.attempts) - truncated} terminated"


def success_is_told_at_the_end(subject: CheckedEnvironment) -> str:
    """Evaluation counts successes, not rewards: `success` is None until the attempt ends, then True or False."""
    for attempt in subject.attempts:
        for step, outcome in enumerate(attempt.outcomes):
            if outcome.ended and outcome.success is None:
                raise attempt.break_rule("the attempt ended, but `success` is None")
            if not outcome.ended and outcome.success is not None:
                raise attempt.break_rule(f"`success` is {outcome.success} at step {step}, before the end")
    if not any(attempt.outcomes[-1].ended for attempt in subject.attempts):
        raise NotTestedError("no attempt ended")
    successes = sum(bool(attempt.outcomes[-1].success) for attempt in subject.attempts)
    return f"{successes} of {len(subject.attempts)} random attempts succeeded"


def refuses_to_act_after_the_end(subject: CheckedEnvironment) -> str:
    """A loop that steps finished attempts trains on steps that never counted; an error shows it at once."""
    subject.require_repeatable()
    checked = 0
    for attempt in subject.attempts:
        if not attempt.outcomes[-1].ended:
            continue
        environment = subject.open_after(attempt.task, attempt.actions)
        checked += 1
        try:
            environment.act(attempt.actions[-1])
        except Exception:  # any exception will do: the rule is that it refuses
            continue
        raise attempt.break_rule("it acted after its end without an error")
    if not checked:
        raise NotTestedError("no attempt ended")
    return f"{checked} ended attempts"


def admissible_actions_are_accepted(subject: CheckedEnvironment) -> str:
    """An agent that picks from the list must not be punished for it."""
    subject.require_repeatable()
    tried = 0
    for attempt in subject.attempts:
        step = len(attempt.actions) // 2
        admissible = attempt.observations[step].admissible or ()
        for action in admissible[: MAX_ACTIONS_TRIED - tried]:
            outcome = subject.open_after(attempt.task, attempt.actions[:step]).act(action)
            tried += 1
            if not outcome.accepted:
                raise attempt.break_rule(f"{action!r} is listed after {step} steps, but it is not accepted")
    if not tried:
        raise NotTestedError("no actions are listed")
    return f"{tried} listed actions"


def nonsense_is_refused(subject: CheckedEnvironment) -> str:
    """A language model will say anything. What cannot be understood is a step with `accepted` False, and never an
    exception, or one odd sample ends the attempt as an error.
    """
    task = subject.tasks[0]
    for action in NONSENSE:
        try:
            outcome = subject.part.open(task).act(action)
        except Exception as error:
            raise BrokenRuleError(f"the action {action[:40]!r} raised {type(error).__name__}: {error}") from None
        if outcome.accepted:
            raise BrokenRuleError(f"the action {action[:40]!r} counts as accepted")
    return f"{len(NONSENSE)} nonsense actions"


def rewards_are_finite(subject: CheckedEnvironment) -> str:
    """One NaN in a group makes the credit of all its members NaN."""
    rewards = [outcome.reward for attempt in subject.attempts for outcome in attempt.outcomes]
    try:
        plain = [to_plain_reward(reward) for reward in rewards]
    except EnvironmentFault as fault:
        raise BrokenRuleError(str(fault)) from None
    if not plain:
        raise NotTestedError("no step was taken")
    return f"between {min(plain)} and {max(plain)}"


def fork_is_exact(subject: CheckedEnvironment) -> str:
    """Branching methods compare continuations from one state; a fork that draws other chances is another state."""
    for attempt, middle, _, fork in _fork_attempts(subject):
        rest = [outcome_to_comparable(fork.act(action)) for action in attempt.actions[middle:]]
        attempt.expect(rest, f"a fork after {middle} steps went another way", start=middle + 1)
    return f"{len(subject.attempts)} forks"


def fork_is_independent(subject: CheckedEnvironment) -> str:
    """If a fork shares lists with its original, exploring one branch corrupts the others."""
    for attempt, middle, environment, fork in _fork_attempts(subject):
        before = to_comparable(environment.observe())
        for action in attempt.actions[middle:]:
            fork.act(action)
        if to_comparable(environment.observe()) != before:
            raise attempt.break_rule("acting in a fork changed what the original shows")
        rest = [outcome_to_comparable(environment.act(action)) for action in attempt.actions[middle:]]
        attempt.expect(rest, "acting in a fork changed the original", start=middle + 1)
    return f"{len(subject.attempts)} forks"


def _fork_attempts(subject: CheckedEnvironment) -> Iterator[tuple[RecordedAttempt, int, Environment, Environment]]:
    """Each attempt, played up to its middle and forked there."""
    if not isinstance(subject.part.open(subject.tasks[0]), Forkable):
        raise NotTestedError("the environment has no `fork`")
    subject.require_repeatable()
    for attempt in subject.attempts:
        middle = len(attempt.actions) // 2
        environment = subject.open_after(attempt.task, attempt.actions[:middle])
        assert isinstance(environment, Forkable)
        yield attempt, middle, environment, environment.fork()


def expert_succeeds(subject: CheckedEnvironment) -> str:
    """Warm starts and demonstrations come from the expert; a failed one teaches failure."""
    if not isinstance(subject.part.open(subject.tasks[0]), Expert):
        raise NotTestedError("the environment has no `expert`")
    lengths = []
    for task in subject.tasks:
        steps_played = list(subject.play_by_expert(task))
        if any(not outcome.accepted for _, outcome in steps_played):
            raise BrokenRuleError(f"task {task.id}: the expert took an action that is refused")
        if not (steps_played and steps_played[-1][1].success):
            raise BrokenRuleError(f"task {task.id}: the expert did not succeed in {len(steps_played)} steps")
        lengths.append(len(steps_played))
    return f"{len(lengths)} of {len(lengths)} tasks, in {min(lengths)} to {max(lengths)} steps"


def panels_are_disjoint(subject: CheckedEnvironment) -> str:
    """A task in both training and test panels makes the test measure memory."""
    panels = {split: ask_panel(subject.part, split) for split in SPLITS}
    if sum(map(bool, panels.values())) < 2:
        raise NotTestedError("only one panel has any tasks")
    try:
        check_disjoint(panels)
    except GroupwiseError as error:
        raise BrokenRuleError(str(error)) from None
    return ", ".join(f"{len(panels[split])} {split}" for split in SPLITS)


def panels_are_fixed(subject: CheckedEnvironment) -> str:
    """Two results can be compared only if they were measured on the same tasks."""
    for split in SPLITS:
        first = panel_hash(subject.part.panel(split))
        again, twin = panel_hash(subject.part.panel(split)), panel_hash(copy.deepcopy(subject.part).panel(split))
        if not first == again == twin:
            raise BrokenRuleError(f"the {split} panel has other tasks when it is asked for again")
    return f"test panel {panel_hash(subject.part.panel('test'))[:12]}"


def task_ids_come_from_content(subject: CheckedEnvironment) -> str:
    """Ids join the records of different runs; an id that counts or is random joins the wrong ones."""
    for task in subject.tasks:
        remade = Task.create(env=task.env, split=task.split, seed=task.seed, payload=task.payload)
        if remade.id != task.id:
            raise BrokenRuleError(
                f"task {task.id}: from its content the id would be {remade.id}; make tasks with Task.create"
            )
    return f"{len(subject.tasks)} ids"


def vocabulary_covers_every_word(subject: CheckedEnvironment) -> str:
    """The tiny engine's tokenizer is made from the vocabulary; it cannot read or say a word that is not in it."""
    if not has_vocabulary(subject.part):
        raise NotTestedError("there is no vocabulary(), which only a model made from scratch needs")
    known = set(ask_vocabulary(subject.part))
    texts = [ask_instruction(subject.part)]
    for _, seen in iterate_observations(subject):
        texts += [seen.text, seen.goal, *(seen.admissible or ())]
    texts += [action for task in subject.tasks for action, _ in subject.play_by_expert(task)]
    unknown = sorted({word for text in texts for word in split_words(text)} - known)
    if unknown:
        raise BrokenRuleError(f"these words are not in it: {', '.join(unknown[:10])}")
    return f"{len(known)} words"


def acts_fast_enough(subject: CheckedEnvironment) -> str:
    """A model samples a few thousand actions a second at best; a slower world leaves it waiting."""
    steps, started = 0, time.perf_counter()
    while steps == 0 or (time.perf_counter() - started < 0.2 and steps < 5000):
        for attempt in subject.attempts:
            steps += len(subject.replay(attempt.task, attempt.actions).outcomes)
    rate = steps / (time.perf_counter() - started)
    if rate < MIN_STEPS_PER_SECOND:
        raise BrokenRuleError(f"{rate:.1f} steps a second")
    return f"{rate:,.0f} steps a second, opening included"


# The conformance suite's rules for state keys, which decide what steps are compared with.

MIN_REVISITS = 5
"""How often a situation must have come again before the key is judged by it."""
MIN_COUNTED_STEPS = 5
"""How long an attempt must be before a number that grows with it counts as a counter."""
MAX_RETURNS_TRIED = 60
"""How many ways there and back are tried; each needs a replay of two steps."""
STAMP = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d")


def state_key_is_hashable(subject: CheckedEnvironment) -> str:
    """Steps are grouped by their key, so it must work in a dictionary."""
    keys = 0
    for attempt, seen in iterate_observations(subject):
        try:
            hash(seen.state_key)
        except Exception as error:  # a __hash__ of somebody else's may raise anything
            raise attempt.break_rule(f"{quote_error(error)}; use text or a tuple of texts and numbers") from None
        keys += seen.state_key is not None
    if not keys:
        raise NotTestedError("every state_key is None: steps are compared by task alone")
    return f"{keys} keys"


def state_key_can_be_written(subject: CheckedEnvironment) -> str:
    """Keys are kept in the journal and sent between processes. One that cannot be written ends its attempt as a fault:
    use text, finite numbers, True, False, None, or tuples of these.
    """
    keys = 0
    for attempt, seen in iterate_observations(subject):
        try:
            hash(seen.state_key)
        except Exception:
            raise NotTestedError("there are keys that are not hashable, which is another rule") from None
        try:
            keys += to_plain_key(seen.state_key) is not None
        except EnvironmentFault as fault:
            raise attempt.break_rule(f"{fault}") from None
    if not keys:
        raise NotTestedError("every state_key is None: steps are compared by task alone")
    return f"{keys} keys"


def state_key_is_equal_for_equal_situations(subject: CheckedEnvironment) -> str:
    """Step-level credit compares steps with equal keys. A key with an address, a random number or a time in it is
    never equal, and the method silently falls back to comparing whole attempts.
    """
    subject.require_repeatable()
    subject.require_keys()
    difference = _find_unequal_keys(subject)
    if difference:
        raise BrokenRuleError(difference)
    return f"{sum(len(attempt.keys) for attempt in subject.attempts)} keys met twice"


def _find_unequal_keys(subject: CheckedEnvironment) -> str:
    """Where an attempt, played again, has other keys; empty = nowhere."""
    for attempt in subject.attempts:
        again = subject.replay(attempt.task, attempt.actions)
        for step, (key, key_again) in enumerate(zip(attempt.keys, again.keys, strict=True)):
            if key != key_again:
                return f"task {attempt.task.id}: after the same {step} actions the keys are {key!r} and {key_again!r}"
    return ""


def state_key_has_no_counter_or_clock(subject: CheckedEnvironment) -> str:
    """A step number or a time makes every visit of a situation a new one, so nothing is ever compared."""
    subject.require_keys()
    for attempt in subject.attempts:
        for key in attempt.keys:
            if STAMP.search(str(key)) or any(_is_now(int(run)) for run in re.findall(r"\d{10,20}", str(key))):
                raise attempt.break_rule(f"the key {key!r} contains a time")
    revisits = agreements = 0
    ways = {
        "": _find_revisits(subject),
        " after a step that was wasted on an action that is not understood": _try_detours(subject),
        " by a way there and back": _try_returns(subject),
    }
    for way, meetings in ways.items():
        agreed = sum(meetings)
        if len(meetings) >= MIN_REVISITS and not agreed:
            raise BrokenRuleError(
                f"the same text and actions came again {len(meetings)} times{way}, each time with a new key"
            )
        revisits, agreements = revisits + len(meetings), agreements + agreed
    if agreements:
        return f"{revisits} situations came again, {agreements} of them with a key seen before"
    long = [attempt.keys for attempt in subject.attempts if len(attempt.keys) >= MIN_COUNTED_STEPS]
    if len(long) >= 2 and all(_is_counter(keys) for keys in long):
        raise BrokenRuleError(f"a number in the key counts the steps: {', '.join(map(repr, long[0][:3]))}")
    came = f"{revisits}, each time with a new key" if revisits else "none"
    raise NotTestedError(f"too few situations came again to tell a counter by: {came}")


def _find_revisits(subject: CheckedEnvironment) -> list[bool]:
    """Situations that came again within an attempt: whether each came with a key that it had before."""
    meetings: list[bool] = []
    for attempt in subject.attempts:
        keys_of: dict[object, set[Hashable]] = defaultdict(set)
        for seen, key in zip(attempt.observations, attempt.keys, strict=True):
            known = keys_of[to_comparable(seen)]
            meetings += [key in known] if known else []
            known.add(key)
    return meetings


def _try_detours(subject: CheckedEnvironment) -> list[bool]:
    """Situations that were reached once more after a step that was wasted: whether each has the key it had without."""
    meetings: list[bool] = []
    if subject.unrepeatable or _find_unequal_keys(subject):  # attempts cannot be compared with one another
        return meetings
    for attempt in subject.attempts:
        try:
            longer = subject.replay(attempt.task, (NONSENSE[0], *attempt.actions))
        except Exception:  # nonsense has a rule of its own
            continue
        pairs = zip(attempt.observations, attempt.keys, longer.observations[1:], longer.keys[1:], strict=False)
        meetings += [key == later for seen, key, again, later in pairs if to_comparable(seen) == to_comparable(again)]
    return meetings


def _try_returns(subject: CheckedEnvironment) -> list[bool]:
    """Situations that two accepted actions led away from and back to: whether each has the key it had."""
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
    panels_are_disjoint,
    panels_are_fixed,
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
            results.append(describe_result(rule, "not tested", "the environment could not be played"))
        else:  # at first a ConfigError says that a package, data or fields are not there: there is nothing to check
            results.append(try_rule(rule, subject, passing=() if results else ConfigError))
    return results


def _choose_tasks(part: EnvironmentPart, tasks: Sequence[Task] | int, seed: int) -> tuple[Task, ...]:
    if not isinstance(tasks, int):
        return tuple(tasks)
    panel = ask_panel(part, "train")
    if not panel:
        raise BrokenRuleError("the train panel is empty")
    return tuple(Draws("checker", seed).sample(panel, min(tasks, len(panel))))
