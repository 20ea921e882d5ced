"""The rules of the conformance suite for environments. Each one's docstring says why it matters, to whoever breaks it.

A rule returns what it found; it raises `BrokenRuleError` with what is wrong, or `NotTestedError` where it could not be
tried, or there is nothing to try it on.
"""

from __future__ import annotations

import copy
import random
import time
from dataclasses import replace

import numpy as np

from groupwise.core.errors import EnvironmentFault, GroupwiseError
from groupwise.core.records import Task
from groupwise.core.rules import BrokenRuleError, NotTestedError
from groupwise.envs.checker.subject import (
    NONSENSE,
    Attempt,
    Comparable,
    Subject,
    find_first_difference,
    iterate_observations,
    outcome_to_comparable,
    to_comparable,
)
from groupwise.envs.environment import Expert, Forkable, Observation
from groupwise.envs.kit.panel import SPLITS, check_disjoint, panel_hash
from groupwise.envs.kit.words import split_words
from groupwise.envs.mixture import has_vocabulary
from groupwise.envs.part_queries import ask_instruction, ask_panel, ask_vocabulary
from groupwise.envs.plain_records import to_plain_advice, to_plain_observation, to_plain_outcome, to_plain_reward

MAX_ACTIONS_TRIED = 200
"""How many admissible actions are tried; each needs a replay."""
MIN_STEPS_PER_SECOND = 5


def opens_and_plays(subject: Subject) -> str:
    """The loop relies on `observe` returning an Observation and `act` an Outcome."""
    if not isinstance(subject.part.instruction(), str) or "\n" in subject.part.instruction():
        raise BrokenRuleError("`instruction()` is not one line of text")
    steps = sum(len(attempt.actions) for attempt in subject.attempts)
    return f"{len(subject.attempts)} attempts at {len(subject.tasks)} tasks, {steps} steps"


def fields_have_their_types(subject: Subject) -> str:
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
            raise BrokenRuleError(f"task {attempt.task.id}: {fault}") from None
    return f"{sum(len(attempt.outcomes) for attempt in subject.attempts)} outcomes"


def is_repeatable(subject: Subject) -> str:
    """Attempts of a group are compared because they face one world. If the same task can begin or go on differently
    after the same actions, credit rewards luck, and no run can be repeated.
    """
    difference = subject.unrepeatable
    if difference:
        raise BrokenRuleError(difference)
    return f"{len(subject.attempts)} attempts played three times"


def observe_has_no_effect(subject: Subject) -> str:
    """The loop, the memory and the viewer all look; if looking changes the world, they change the attempt."""
    subject.require_repeatable()
    for attempt in subject.attempts:
        environment = subject.part.open(attempt.task)
        transcript = [to_comparable(environment.observe())]
        for action in attempt.actions:
            if to_comparable(environment.observe()) != to_comparable(environment.observe()):
                raise BrokenRuleError(f"task {attempt.task.id}: observing twice showed two different things")
            transcript.append(outcome_to_comparable(environment.act(action)))
        if transcript != attempt.transcript:
            raise BrokenRuleError(
                f"task {attempt.task.id}: observing in between changed what happened, "
                + find_first_difference(transcript, attempt.transcript)
            )
    return f"{len(subject.attempts)} attempts with extra observations"


def is_isolated(subject: Subject) -> str:
    """Many environments live in one process. One that draws from, or seeds, a process-wide generator changes its
    neighbours and the trainer, and a result then depends on who else was running.
    """
    subject.require_repeatable()
    attempts = subject.attempts
    for first, second in zip(attempts, [*attempts[2:], *attempts[:2]], strict=True):
        for transcript, expected in zip(_play_interleaved(subject, first, second), (first, second), strict=True):
            if transcript != expected.transcript:
                raise BrokenRuleError(
                    f"task {expected.task.id}: it went differently while another environment was in use, "
                    + find_first_difference(transcript, expected.transcript)
                )
    if _moves_process_wide_random(subject):
        raise BrokenRuleError("playing moved the process-wide random generator; keep a generator in the environment")
    return f"{len(attempts)} pairs of environments played in turn"


def _moves_process_wide_random(subject: Subject) -> bool:
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


def _play_interleaved(subject: Subject, first: Attempt, second: Attempt) -> tuple[list[Comparable], list[Comparable]]:
    environments = (subject.part.open(first.task), subject.part.open(second.task))
    transcripts: tuple[list[Comparable], list[Comparable]] = ([], [])
    for environment, transcript in zip(environments, transcripts, strict=True):
        transcript.append(to_comparable(environment.observe()))
    for step in range(max(len(first.actions), len(second.actions))):
        for attempt, environment, transcript in zip((first, second), environments, transcripts, strict=True):
            if step < len(attempt.actions):
                transcript.append(outcome_to_comparable(environment.act(attempt.actions[step])))
    return transcripts


def ends_in_time(subject: Subject) -> str:
    """An attempt that never ends stalls its group. At max_steps an environment is terminated or truncated; the two are
    told apart because a cut-off says nothing about what would have come.
    """
    limit, truncated = subject.part.max_steps, 0
    for attempt in subject.attempts:
        if not attempt.outcomes[-1].ended:
            raise BrokenRuleError(
                f"task {attempt.task.id}: after {limit} steps, max_steps, it is neither terminated nor truncated"
            )
        truncated += attempt.outcomes[-1].truncated
    if not _ends_when_stalled(subject):
        raise BrokenRuleError(f"after {limit} actions that it did not understand, max_steps, it goes on")
    return f"{truncated} attempts truncated at {limit} steps, {len(subject.attempts) - truncated} terminated"


def _ends_when_stalled(subject: Subject) -> bool:
    """Whether an attempt that gets nowhere ends at the limit; random attempts may all reach an end before it."""
    environment = subject.part.open(subject.tasks[0])
    try:
        return any(environment.act(NONSENSE[0]).ended for _ in range(subject.part.max_steps))
    except Exception:  # nonsense has a rule of its own
        return True


def success_is_told_at_the_end(subject: Subject) -> str:
    """Evaluation counts successes, not rewards: `success` is None until the attempt ends, then True or False."""
    for attempt in subject.attempts:
        for step, outcome in enumerate(attempt.outcomes):
            if outcome.ended and outcome.success is None:
                raise BrokenRuleError(f"task {attempt.task.id}: the attempt ended, but `success` is None")
            if not outcome.ended and outcome.success is not None:
                raise BrokenRuleError(
                    f"task {attempt.task.id}: `success` is {outcome.success} at step {step}, before the end"
                )
    if not any(attempt.outcomes[-1].ended for attempt in subject.attempts):
        raise NotTestedError("no attempt ended")
    successes = sum(bool(attempt.outcomes[-1].success) for attempt in subject.attempts)
    return f"{successes} of {len(subject.attempts)} random attempts succeeded"


def refuses_to_act_after_the_end(subject: Subject) -> str:
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
        raise BrokenRuleError(f"task {attempt.task.id}: it acted after its end without an error")
    if not checked:
        raise NotTestedError("no attempt ended")
    return f"{checked} ended attempts"


def admissible_actions_are_accepted(subject: Subject) -> str:
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
                raise BrokenRuleError(
                    f"task {attempt.task.id}: {action!r} is listed after {step} steps, but it is not accepted"
                )
    if not tried:
        raise NotTestedError("no actions are listed")
    return f"{tried} listed actions"


def nonsense_is_refused(subject: Subject) -> str:
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


def rewards_are_finite(subject: Subject) -> str:
    """One NaN in a group makes the credit of all its members NaN."""
    rewards = [outcome.reward for attempt in subject.attempts for outcome in attempt.outcomes]
    try:
        plain = [to_plain_reward(reward) for reward in rewards]
    except EnvironmentFault as fault:
        raise BrokenRuleError(str(fault)) from None
    if not plain:
        raise NotTestedError("no step was taken")
    return f"between {min(plain)} and {max(plain)}"


def fork_is_exact(subject: Subject) -> str:
    """Branching methods compare continuations from one state; a fork that draws other chances is another state."""
    for attempt in _require_forks(subject):
        middle = len(attempt.actions) // 2
        environment = subject.open_after(attempt.task, attempt.actions[:middle])
        assert isinstance(environment, Forkable)
        fork = environment.fork()
        transcript = [outcome_to_comparable(fork.act(action)) for action in attempt.actions[middle:]]
        if transcript != attempt.transcript[middle + 1 :]:
            difference = find_first_difference(transcript, attempt.transcript[middle + 1 :])
            raise BrokenRuleError(f"task {attempt.task.id}: a fork after {middle} steps went another way, {difference}")
    return f"{len(subject.attempts)} forks"


def fork_is_independent(subject: Subject) -> str:
    """If a fork shares lists with its original, exploring one branch corrupts the others."""
    for attempt in _require_forks(subject):
        middle = len(attempt.actions) // 2
        environment = subject.open_after(attempt.task, attempt.actions[:middle])
        assert isinstance(environment, Forkable)
        before, fork = to_comparable(environment.observe()), environment.fork()
        for action in attempt.actions[middle:]:
            fork.act(action)
        if to_comparable(environment.observe()) != before:
            raise BrokenRuleError(f"task {attempt.task.id}: acting in a fork changed what the original shows")
        transcript = [outcome_to_comparable(environment.act(action)) for action in attempt.actions[middle:]]
        if transcript != attempt.transcript[middle + 1 :]:
            difference = find_first_difference(transcript, attempt.transcript[middle + 1 :])
            raise BrokenRuleError(f"task {attempt.task.id}: acting in a fork changed the original, {difference}")
    return f"{len(subject.attempts)} forks"


def _require_forks(subject: Subject) -> list[Attempt]:
    if not isinstance(subject.part.open(subject.tasks[0]), Forkable):
        raise NotTestedError("the environment has no `fork`")
    subject.require_repeatable()
    return subject.attempts


def expert_succeeds(subject: Subject) -> str:
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


def panels_are_disjoint(subject: Subject) -> str:
    """A task in both training and test panels makes the test measure memory."""
    panels = {split: ask_panel(subject.part, split) for split in SPLITS}
    if sum(map(bool, panels.values())) < 2:
        raise NotTestedError("only one panel has any tasks")
    try:
        check_disjoint(panels)
    except GroupwiseError as error:
        raise BrokenRuleError(str(error)) from None
    return ", ".join(f"{len(panels[split])} {split}" for split in SPLITS)


def panels_are_fixed(subject: Subject) -> str:
    """Two results can be compared only if they were measured on the same tasks."""
    for split in SPLITS:
        first = panel_hash(subject.part.panel(split))
        again, twin = panel_hash(subject.part.panel(split)), panel_hash(copy.deepcopy(subject.part).panel(split))
        if not first == again == twin:
            raise BrokenRuleError(f"the {split} panel has other tasks when it is asked for again")
    return f"test panel {panel_hash(subject.part.panel('test'))[:12]}"


def task_ids_come_from_content(subject: Subject) -> str:
    """Ids join the records of different runs; an id that counts or is random joins the wrong ones."""
    for task in subject.tasks:
        remade = Task.create(env=task.env, split=task.split, seed=task.seed, payload=task.payload)
        if remade.id != task.id:
            raise BrokenRuleError(
                f"task {task.id}: from its content the id would be {remade.id}; make tasks with Task.create"
            )
    return f"{len(subject.tasks)} ids"


def vocabulary_covers_every_word(subject: Subject) -> str:
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


def acts_fast_enough(subject: Subject) -> str:
    """A model samples a few thousand actions a second at best; a slower world leaves it waiting."""
    steps, started = 0, time.perf_counter()
    while steps == 0 or (time.perf_counter() - started < 0.2 and steps < 5000):
        for attempt in subject.attempts:
            steps += len(subject.replay(attempt.task, attempt.actions).outcomes)
    rate = steps / (time.perf_counter() - started)
    if rate < MIN_STEPS_PER_SECOND:
        raise BrokenRuleError(f"{rate:.1f} steps a second")
    return f"{rate:,.0f} steps a second, opening included"
