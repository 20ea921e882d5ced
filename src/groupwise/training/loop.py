"""The loop: collect attempts, give credit, learn, hand the weights over, write it down. It knows no method by name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

from groupwise.data.samples import count_totals
from groupwise.learner.protocol import check_learned
from groupwise.store.checkpoint_files import find_latest_checkpoint
from groupwise.store.journal import Update
from groupwise.system.errors import ConfigError, TrainingError
from groupwise.system.secrets import check_no_secret
from groupwise.training.alarms import RunWatch
from groupwise.training.checkpoints import keep_evaluated, remove_others, resume_run, save_run
from groupwise.training.collect.ahead import PlayedNow, open_source
from groupwise.training.evaluation.evaluate import evaluate_run
from groupwise.training.loss_context import report_missing_pairs
from groupwise.training.observer import ObserverList, RunObserver, Stopwatch, check_observers
from groupwise.training.open_run import Settings, open_run
from groupwise.training.run import Run
from groupwise.training.samples import credit_batch, make_samples
from groupwise.training.trackers import track_run
from groupwise.training.update_metrics import compute_update_metrics, describe_update
from groupwise.training.warm_start import warm_start


def train(
    run: Run | Settings,
    folder: Path | str | None = None,
    *,
    resume: bool = False,
    observers: Sequence[RunObserver] = (),
) -> Path:
    """Make a run's updates, and leave a complete folder: settings, journal, checkpoints, what trackers write.

    Args:
        run: one that was opened, or the settings of one, which is then opened and closed here.
        folder: where the run is, or will be, as `open_run` takes it; not for a run that is open.
        resume: whether to go on from the last checkpoint, as if the run had never stopped.
        observers: told what happens; they change nothing.

    Returns:
        The run's folder, for `read_run` and every command.
    """
    check_observers(observers)  # before a model loads
    if not isinstance(run, Run):
        with open_run(run, folder) as opened:
            return train(opened, resume=resume, observers=observers)
    if folder is not None:
        raise ConfigError(f"train was given a folder for a run that is open in {run.folder}; leave it out")
    for _ in make_updates(run, resume=resume, observers=observers):
        pass
    return run.folder


def make_updates(run: Run, *, resume: bool = False, observers: Sequence[RunObserver] = ()) -> Iterator[Update]:
    """Make the run's updates as `train` does, one whenever the next is asked for; whoever stops asking ends the run.

    The folder is the run's alone from `open_run` until the last was made.
    """
    check_observers(observers)
    run.journal.check_open()
    run.lock.acquire()
    try:
        settings = run.config.config()
        with run.lock.release_on_failure():
            check_no_secret(settings)  # before anything of them is written
        done = resume_run(run) if resume else None  # a resumed run writes into its journal what its settings change
        if done is None and (run.journal.last_number() >= 0 or find_latest_checkpoint(run.checkpoints)):
            raise TrainingError(
                f"{run.folder} holds a run already; go on with resume=True (on the command line --resume), or choose "
                "another folder"
            )
        if done is not None and done > run.config.training.updates:
            return
        with ExitStack() as stack:
            with run.lock.release_on_failure():
                # Not before the checkpoint was loaded: settings that do not fit it must not replace those that do.
                run.paths.write_config(settings)
                trackers = stack.enter_context(track_run(run.config.trackers, settings, run.folder))
            yield from _make_due(run, done, ObserverList([*observers, trackers]))
    finally:
        run.lock.release()


def _make_due(run: Run, done: int | None, observer: ObserverList) -> Iterator[Update]:
    """Make the updates after those that are done, with the checkpoints and evaluations that are due."""
    config, watch = run.config, RunWatch(run, observer)
    if done is None:
        done = _start(run, observer)
    run.journal.name_panels(run.panels)  # not before: a run that was refused, or never began, has named no tasks
    if done == 0 or watch.is_due(done, config.evaluation.every):
        _evaluate(run, done, observer, watch)
    watch.tell_alarms(done)
    if watch.ends(done):
        return
    with closing(open_source(run, done)) as source:
        for number in range(done + 1, config.training.updates + 1):
            update = make_update(run, number, observer, source)
            # A policy that became the reference is kept, so that a resumed run has it.
            if watch.is_due(number, config.training.checkpoint_every) or run.reference == number:
                observer.on_stage("checkpoint", number)
                save_run(run, number)
                remove_others(run)
            observer.on_update(update)
            if watch.is_due(number, config.evaluation.every):
                _evaluate(run, number, observer, watch)
            watch.tell_alarms(number)
            yield update
            if watch.ends(number):
                return


def make_update(run: Run, number: int, observer: RunObserver, source: PlayedNow | None = None) -> Update:
    """Make one update, stage by stage, and write it into the journal; what was written.

    `source` is where its attempts come from; None = they are played now, whatever the run's lag.
    """
    clock, source = Stopwatch(observer, number), source or PlayedNow(run)
    clock.begin_stage("rollout")
    attempts = source.take(number, clock)  # play, score, choose, admit, measure, shape, recall past ones
    clock.begin_stage("credit")
    batch = credit_batch(
        run.config.algorithm, attempts.chosen, attempts.recalled, version=number - 1, states=attempts.states
    )
    samples = make_samples(batch)
    totals = count_totals(samples, max_tokens=run.config.rollout.max_tokens, pairs=batch.context.pairs)
    report_missing_pairs(run.config.algorithm, totals, number=number, journal=run.journal)
    clock.begin_stage("learn")
    learned: dict[str, float] = {}
    if totals.tokens:
        account = run.learner.learn(samples, totals)  # the learner packs the samples itself
        check_learned(run.learner, account)
        learned = account.metrics
    ahead = source.finish_ahead(number, clock)  # what was played meanwhile with the weights before these
    clock.begin_stage("handover")
    of_engine = run.take_engine_metrics(run.hand_over(number))  # sync weights, then check them
    run.observe(number, attempts.survivors, batch, learned)  # curriculum and parts that remember
    clock.begin_stage("write")
    metrics = compute_update_metrics(
        run.config, attempts, batch, totals, learned=learned, of_engine=of_engine, seconds=clock.seconds
    )
    if run.reference is not None:
        metrics["learner/reference"] = float(run.reference)
    update = describe_update(number, attempts, batch, metrics, ahead)
    run.lock.check()
    run.journal.write(update, checkpoints=run.paths.checkpoint_numbers())
    return update


def _evaluate(run: Run, number: int, observer: RunObserver, watch: RunWatch) -> None:
    """Evaluate, unless that was done before the run was interrupted."""
    config = run.config.evaluation
    if config.tasks and (number, config.split) not in {(row.number, row.split) for row in run.journal.evaluations()}:
        observer.on_stage("evaluate", number)
        observer.on_evaluation(evaluate_run(run))
    if config.tasks:
        keep_evaluated(run, number, is_last=watch.ends(number))


def _start(run: Run, observer: RunObserver) -> int:
    """Begin a run: its warm start, if it has one, and the checkpoint of update 0."""
    if run.config.warm_start is None:
        run.start_engine()
    else:
        observer.on_stage("warm start", 0)
        report_epoch, report_faults = observer.on_warm_start_epoch, observer.on_expert_faults
        losses = warm_start(run, run.config.warm_start, report_epoch=report_epoch, report_faults=report_faults)
        observer.on_warm_start(losses)
    observer.on_stage("checkpoint", 0)
    save_run(run, 0)
    if run.needs_reference:
        run.learner.hold_reference()
    return 0
