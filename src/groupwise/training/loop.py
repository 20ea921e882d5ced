"""The loop: sample attempts, compare them, learn, hand the weights over, write it down. It knows no method by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from groupwise.batching import count_totals
from groupwise.core.errors import ConfigError
from groupwise.core.journal.journal import Update
from groupwise.core.parts.results import describe
from groupwise.training.attempts.collect import gather
from groupwise.training.checkpoints.checkpoint import save_checkpoint
from groupwise.training.checkpoints.resume import resume as go_back
from groupwise.training.evaluate_run import evaluate_run
from groupwise.training.folder_start import check_unused, settings_written
from groupwise.training.imitation.warm_start import warm_start
from groupwise.training.learner.answers import check_learned
from groupwise.training.metrics.rescue import rescue_metrics
from groupwise.training.metrics.rollout import credit_metrics, rollout_metrics
from groupwise.training.metrics.speed import speed_metrics
from groupwise.training.metrics.stopwatch import Stopwatch
from groupwise.training.metrics.table import checked
from groupwise.training.observer import Observer, Observers
from groupwise.training.penalties import credit_rests_on_penalties
from groupwise.training.run import Run
from groupwise.training.samples import credited, make_samples


def train(run: Run, *, resume: bool = False, observers: Sequence[Observer] = ()) -> None:
    """Make the run's updates, and leave a complete folder: settings, journal, checkpoints, what trackers write.

    The folder is the run's alone from `open_run` until this returns.

    Args:
        run: as `open_run` opened it.
        resume: whether to go on from the last checkpoint, as if the run had never stopped.
        observers: told what happens; they change nothing.
    """
    if not isinstance(run, Run):
        raise ConfigError(
            f"train was given {describe(run)}, but a run that was opened is needed: with open_run(config, "
            "'runs/first') as run: train(run)"
        )
    run.lock.acquire()
    try:
        done = go_back(run) if resume else None
        if done is None:
            check_unused(run)
        # Not before the checkpoint was loaded: settings that do not fit it must not replace those that do.
        with settings_written(run) as trackers:
            _train(run, done, Observers([*observers, trackers]))
    finally:
        run.lock.release()


def _train(run: Run, done: int | None, observer: Observer) -> None:
    config = run.config
    if done is None:
        done = _start(run, observer)
    if done == 0 or _due(done, config.evaluation.every, run):
        _evaluate(run, done, observer)
    for number in range(done + 1, config.training.updates + 1):
        update = make_update(run, number, observer)
        if _due(number, config.training.checkpoint_every, run):
            _save(run, number, observer)
        observer.updated(update)
        if _due(number, config.evaluation.every, run):
            _evaluate(run, number, observer)


def make_update(run: Run, number: int, observer: Observer) -> Update:
    """One turn of the loop."""
    clock, config = Stopwatch(observer, number), run.config
    clock.stage("rollout")
    remembered = run.part_states.state_dict()
    gathered = gather(run, number)
    clock.stage("credit")
    states = run.part_states.before(remembered, gathered.taking_part)
    credit = credited(config.algorithm, gathered.chosen, gathered.recalled, version=number - 1, states=states)
    samples = make_samples(credit)
    totals = count_totals(samples, max_tokens=config.rollout.max_tokens, pairs=credit.context.pairs)
    clock.stage("learn")
    learned = run.learner.learn(samples, totals) if totals.tokens else None
    if totals.tokens:
        check_learned(run.learner, learned)
    clock.stage("handover")
    gap = run.hand_over(number)
    run.curriculum.observe(gathered.survivors)
    run.part_states.observe(number, gathered.survivors, credit, learned.metrics if learned else {})
    clock.stage("write")
    metrics = rollout_metrics(gathered.played, gathered.survivors)
    metrics |= {"engine/canary_gap": gap, "learner/tokens": float(totals.tokens)}
    is_penalised = credit_rests_on_penalties(config.algorithm, credit, version=number - 1, states=states)
    metrics["credit/penalties_alone"] = float(is_penalised)
    metrics |= credit_metrics(*credit.of_first(len(gathered.chosen))) | rescue_metrics(gathered, credit)
    metrics |= speed_metrics(gathered.played, totals, clock.seconds, gathered.waiting)
    metrics |= {**gathered.spent_on_measures, **(learned.metrics if learned else {})}
    metrics |= credit.context.metrics() | ({} if config.algorithm.pairing is None else {"learner/pairs": totals.pairs})
    earned, own = credit.by_trajectory(), len(gathered.chosen)
    update = Update(
        number=number,
        version=number,
        metrics=checked(metrics | clock.seconds),
        trajectories=gathered.chosen,
        credit=earned[:own],
        faults=gathered.faults,
        set_aside=gathered.set_aside,
        asked_for=gathered.asked_for,
        recalled=[replace(one, credit=tuple(c)) for one, c in zip(gathered.recalled, earned[own:], strict=True)],
        states=states,
    )
    run.journal.write(update)
    return update


def _start(run: Run, observer: Observer) -> int:
    """Begin a run: the checkpoint of update 0 is where it all starts."""
    if run.config.warm_start is None:
        run.canary.check(run.engine, run.learner, version=0)
    else:
        observer.stage("warm start", 0)
        losses = warm_start(run, run.config.warm_start, told=observer.warming, report=observer.warn_of_faults)
        observer.warm_started(losses)
    _save(run, 0, observer)
    if run.needs_reference:
        run.learner.hold_reference()
    return 0


def _due(number: int, every: int, run: Run) -> bool:
    """Whether something is due after an update: every so many (0 = never in between), and always after the last."""
    return number == run.config.training.updates or (every > 0 and number % every == 0)


def _save(run: Run, number: int, observer: Observer) -> None:
    observer.stage("checkpoint", number)
    state = {"seed": run.config.seed, "curriculum": run.curriculum.state_dict(), "journal": run.journal.digest()}
    if run.part_states:
        state["parts"] = run.part_states.state_dict()
    save_checkpoint(run.checkpoints, number, run.learner, run.tokenizer, state)


def _evaluate(run: Run, number: int, observer: Observer) -> None:
    """Evaluate, unless that was done before the run was interrupted."""
    config = run.config.evaluation
    if config.tasks and (number, config.split) not in {(each.number, each.split) for each in run.journal.evaluations()}:
        observer.stage("evaluate", number)
        observer.evaluated(evaluate_run(run))
