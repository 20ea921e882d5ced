"""The loop: collect rollouts, compute advantages, learn, sync weights, write. It knows no method by name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

from groupwise.data.samples import count_totals
from groupwise.engines.engine import MeasuredEngine
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
from groupwise.training.trackers import Trackers
from groupwise.training.update_metrics import compute_update_metrics, describe_update
from groupwise.training.warm_start import warm_start


def train(
    run: Run | Settings,
    folder: Path | str | None = None,
    *,
    resume: bool = False,
    observers: Sequence[RunObserver] = (),
) -> Path:
    """Make all updates of a run, and return its folder, with settings, journal and checkpoints.

    Args:
        run: an open run, or the settings of a run, which is then opened and closed here.
        folder: the run's folder, as in `open_run`; not for an open run.
        resume: whether to resume from the last checkpoint, as if the run had never stopped.
        observers: are notified of what happens; they change nothing.
    """
    check_observers(observers)  # before a model loads
    if not isinstance(run, Run):
        with open_run(run, folder) as opened:
            return train(opened, resume=resume, observers=observers)
    if folder is not None:
        raise ConfigError(f"train got a folder for a run that is open in {run.folder}; leave the folder out")
    for _ in make_updates(run, resume=resume, observers=observers):
        pass
    return run.folder


def make_updates(run: Run, *, resume: bool = False, observers: Sequence[RunObserver] = ()) -> Iterator[Update]:
    """Make the run's updates one by one, each when the caller asks for the next; the folder stays locked meanwhile."""
    check_observers(observers)
    run.journal.check_open()
    run.lock.acquire()
    try:
        settings = run.config.config()
        with run.lock.release_on_failure():
            check_no_secret(settings)  # before the settings are written
        done = resume_run(run) if resume else None  # also writes changed settings into the journal
        if done is None and (run.journal.last_number() >= 0 or find_latest_checkpoint(run.checkpoints)):
            raise TrainingError(
                f"{run.folder} holds a run already; continue it with resume=True (on the command line --resume), or "
                "choose another folder"
            )
        if done is not None and done > run.config.training.updates:
            return
        with ExitStack() as stack:
            with run.lock.release_on_failure():
                # After the checkpoint was loaded: settings that do not fit it must not replace the stored ones.
                run.paths.write_config(settings)
                if run.config.trackers:
                    trackers = stack.enter_context(Trackers(run.config.trackers, settings, run.folder))
                    observers = [*observers, trackers]
            yield from _make_due(run, done, ObserverList(observers))
    finally:
        run.lock.release()


def _make_due(run: Run, done: int | None, observer: ObserverList) -> Iterator[Update]:
    """Make the updates after update `done`, with the checkpoints and evaluations that are due."""
    config, watch = run.config, RunWatch(run, observer)
    if done is None:
        done = _start(run, observer)
    run.journal.name_task_sets(run.task_sets)  # only now: the run has begun
    if done == 0 or watch.is_due(done, config.evaluation.every):
        _evaluate(run, done, observer, watch)
    watch.tell_alarms(done)
    if watch.ends(done):
        return
    with closing(open_source(run, done)) as source:
        for number in range(done + 1, config.training.updates + 1):
            update = make_update(run, number, observer, source)
            # A policy that became the reference is saved, because a resumed run needs it.
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
    """Make one update, stage by stage, and write it into the journal.

    `source` gives its rollouts; None = they are sampled now, with any lag.
    """
    clock, source, algorithm = Stopwatch(observer, number), source or PlayedNow(run), run.config.algorithm
    clock.begin_stage("rollout")
    rollouts = source.take(number, clock)  # sample, score, choose, filter, shape, replay
    clock.begin_stage("advantages")
    batch = credit_batch(algorithm, rollouts.chosen, rollouts.replayed, version=number - 1, states=rollouts.states)
    samples = make_samples(batch)
    totals = count_totals(samples, max_tokens=run.config.rollout.max_tokens, pairs=batch.context.pairs)
    if algorithm.pairing is not None and not totals.pairs:
        report_missing_pairs(number, run.journal)
    clock.begin_stage("learn")
    learned: dict[str, float] = {}
    if totals.tokens:
        account = run.learner.learn(samples, totals)  # the learner packs the samples itself
        check_learned(run.learner, account)
        learned = account.metrics
    ahead = source.finish_ahead(number, clock)  # rollouts of later updates, sampled with the weights before these
    clock.begin_stage("sync")
    of_engine = {"weights/check_gap": run.sync(number)}  # sync weights, then check them
    if isinstance(run.engine, MeasuredEngine):
        of_engine |= run.engine.take_metrics()
    run.observe(number, rollouts.survivors, batch, learned)  # curriculum and stateful parts
    clock.begin_stage("write")
    metrics = compute_update_metrics(
        run.config, rollouts, batch, totals, learned=learned, of_engine=of_engine, seconds=clock.seconds
    )
    if run.reference is not None:
        metrics["learner/reference"] = float(run.reference)
    update = describe_update(number, rollouts, batch, metrics, ahead)
    run.lock.check()
    run.journal.write(update, checkpoints=run.paths.checkpoint_numbers())
    return update


def _evaluate(run: Run, number: int, observer: RunObserver, watch: RunWatch) -> None:
    """Evaluate on each task set, unless the journal has the evaluation from before an interruption."""
    task_sets = run.config.evaluation.by_name()
    made = {row.name for row in run.journal.evaluations(number)}
    for name, settings in task_sets.items():
        if name not in made:
            observer.on_stage("evaluate", number)
            observer.on_evaluation(evaluate_run(run, settings=settings, name=name))
    if task_sets:
        keep_evaluated(run, number, is_last=watch.ends(number))


def _start(run: Run, observer: RunObserver) -> int:
    """Begin a run: warm start, if any, and the checkpoint of update 0."""
    if run.config.warm_start is None:
        run.start_engine()
    else:
        observer.on_stage("warm start", 0)
        report_epoch, report_faults = observer.on_warm_start_epoch, observer.on_expert_faults
        losses = warm_start(run, run.config.warm_start, report_epoch=report_epoch, report_faults=report_faults)
        observer.on_warm_start(losses)
    observer.on_stage("checkpoint", 0)
    save_run(run, 0)
    if run.config.needs_reference:
        run.learner.hold_reference()
    return 0
