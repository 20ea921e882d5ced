"""The loop: sample attempts, compare them, learn, hand the weights over, write it down. It knows no method by name."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from groupwise.batching import totals as count
from groupwise.core.errors import TrainingError
from groupwise.core.journal import Update
from groupwise.training.checkpoint import save_checkpoint
from groupwise.training.checkpoint_state import latest_checkpoint
from groupwise.training.evaluation import evaluate
from groupwise.training.gather import gather
from groupwise.training.metrics import checked
from groupwise.training.penalties import rests_on_penalties
from groupwise.training.rescue_metrics import rescue_metrics
from groupwise.training.resume import resume as go_back
from groupwise.training.rollout_metrics import credit_metrics, rollout_metrics
from groupwise.training.run import Run
from groupwise.training.samples import credited, make_samples
from groupwise.training.speed_metrics import speed_metrics
from groupwise.training.warm_start import warm_start
from groupwise.training.watcher import Watchers, Watching


def train(run: Run, *, resume: bool = False, watchers: Sequence[Watching] = ()) -> None:
    """Make the run's updates; a resumed run goes on from its last checkpoint as if it had never stopped.

    The folder is the run's alone from `open_run` until this returns.
    """
    run.lock.acquire()
    try:
        _train(run, Watchers(watchers), resume=resume)
    finally:
        run.lock.release()


def _train(run: Run, watching: Watching, *, resume: bool) -> None:
    config = run.config
    done = go_back(run) if resume else None
    if done is None:
        done = _start(run, watching)
    if done == 0 or _due(done, config.evaluation.every, run):
        _evaluate(run, done, watching)
    for number in range(done + 1, config.training.updates + 1):
        update = make_update(run, number, watching)
        if _due(number, config.training.checkpoint_every, run):
            _save(run, number, watching)
        watching.updated(update)
        if _due(number, config.evaluation.every, run):
            _evaluate(run, number, watching)


def make_update(run: Run, number: int, watching: Watching) -> Update:
    """One turn of the loop."""
    clock, config = Stopwatch(watching, number), run.config
    clock.stage("rollout")
    gathered = gather(run, number)
    clock.stage("credit")
    credit = credited(config.algorithm, gathered.chosen, gathered.recalled, version=number - 1)
    samples = make_samples(credit)
    totals = count(samples, max_tokens=config.rollout.max_tokens)
    clock.stage("learn")
    learned = run.learner.learn(samples, totals) if totals.tokens else None
    clock.stage("handover")
    run.engine.load(run.learner.weights(), version=number)
    gap = run.canary.check(run.engine, run.learner.model, version=number)
    run.curriculum.observe(gathered.survivors)
    clock.stage("write")
    metrics = rollout_metrics(gathered.played, gathered.survivors)
    metrics |= {"engine/canary_gap": gap, "learner/tokens": float(totals.tokens)}
    metrics["credit/penalties_alone"] = float(rests_on_penalties(config.algorithm, credit, version=number - 1))
    metrics |= credit_metrics(*credit.of_first(len(gathered.chosen))) | rescue_metrics(gathered, credit)
    metrics |= speed_metrics(gathered.played, totals, clock.seconds, gathered.waiting)
    metrics |= learned.metrics if learned else {}
    earned, own = credit.by_trajectory(), len(gathered.chosen)
    update = Update(
        number=number,
        version=number,
        metrics=checked(metrics | clock.seconds),
        trajectories=gathered.chosen,
        credit=earned[:own],
        faults=gathered.faults,
        recalled=[replace(one, credit=tuple(c)) for one, c in zip(gathered.recalled, earned[own:], strict=True)],
    )
    run.journal.write(update)
    return update


def _start(run: Run, watching: Watching) -> int:
    """Begin a run: the checkpoint of update 0 is where it all starts."""
    if run.journal.last() >= 0 or latest_checkpoint(run.checkpoints):
        raise TrainingError(f"{run.folder} holds a run already; go on with --resume, or choose another folder")
    if run.config.warm_start is not None:
        watching.stage("warm start", 0)
        losses = warm_start(run, run.config.warm_start, told=watching.warming, report=watching.warn_of_faults)
        watching.warm_started(losses)
    run.canary.check(run.engine, run.learner.model, version=0)
    _save(run, 0, watching)
    run.learner.hold_reference(run.learner.model.state_dict())
    return 0


def _due(number: int, every: int, run: Run) -> bool:
    """Whether something is due after an update: every so many (0 = never in between), and always after the last."""
    return number == run.config.training.updates or (every > 0 and number % every == 0)


def _save(run: Run, number: int, watching: Watching) -> None:
    watching.stage("checkpoint", number)
    state = {"seed": run.config.seed, "curriculum": run.curriculum.state_dict(), "journal": run.journal.digest()}
    save_checkpoint(run.checkpoints, number, run.learner, run.tokenizer, state)


def _evaluate(run: Run, number: int, watching: Watching) -> None:
    """Evaluate, unless that was done before the run was interrupted."""
    config = run.config.evaluation
    if config.tasks and (number, config.split) not in {(each.number, each.split) for each in run.journal.evaluations()}:
        watching.stage("evaluate", number)
        watching.evaluated(evaluate(run))


class Stopwatch:
    """Seconds by stage."""

    def __init__(self, watching: Watching, number: int) -> None:
        self.seconds: dict[str, float] = {}
        self._watching, self._number = watching, number
        self._current, self._since = "", 0.0

    def stage(self, name: str) -> None:
        """End the stage before and begin one."""
        now = time.perf_counter()
        if self._current:
            self.seconds[f"seconds/{self._current}"] = now - self._since
        self._current, self._since = name, now
        self._watching.stage(name, self._number)
