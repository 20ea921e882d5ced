"""The loop: sample attempts, compare them, learn, hand the weights over, write it down. It knows no method by name."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence

from groupwise.batching import totals as count
from groupwise.core.errors import TrainingError
from groupwise.core.journal import Update
from groupwise.core.records import StopReason, Trajectory
from groupwise.core.totals import Totals
from groupwise.rollout.collect import Sampling, collect
from groupwise.training.checkpoint import checkpoint_weights, latest_checkpoint, load_checkpoint, save_checkpoint
from groupwise.training.run import Run
from groupwise.training.samples import credit_by_trajectory, credited, make_samples

FAULTS = (StopReason.ERROR, StopReason.TIMEOUT)


def train(run: Run, *, resume: bool = False, report: Callable[[Update], None] = lambda update: None) -> None:
    """Make the run's updates; a resumed run goes on from its last checkpoint as if it had never stopped."""
    config = run.config
    done = _resume(run) if resume else _start(run)
    for number in range(done + 1, config.training.updates + 1):
        clock = Stopwatch()
        attempts = run.attempts(number)
        played = collect(
            attempts,
            host=run.host,
            engine=run.engine,
            prompter=run.prompter,
            rule=config.rollout.action_rule,
            sampling=Sampling(max_tokens=config.rollout.max_tokens, temperature=config.rollout.temperature),
        )
        clock.lap("rollout")
        survivors = _survivors(played, number, config.training.least_survivors)
        values, compared, keep = credited(config.algorithm, survivors)
        samples = make_samples(survivors, values, keep)
        totals = count(samples, max_tokens=config.rollout.max_tokens)
        clock.lap("credit")
        learned = run.learner.learn(samples, totals) if totals.tokens else None
        clock.lap("learn")
        run.engine.load(run.learner.weights(), version=number)
        gap = run.canary.check(run.engine, run.learner.model, version=number)
        clock.lap("handover")
        metrics = _metrics(played, survivors, compared.mean(), totals) | {"engine/canary_gap": gap}
        metrics |= learned.metrics if learned else {}
        update = Update(
            number=number,
            version=number,
            metrics=metrics | clock.seconds,
            trajectories=survivors,
            credit=credit_by_trajectory(survivors, values),
        )
        run.journal.write(update)
        if number % config.training.checkpoint_every == 0 or number == config.training.updates:
            save_checkpoint(run.checkpoints, number, run.learner, run.tokenizer, {"seed": config.seed})
        report(update)


class Stopwatch:
    """Seconds by stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, stage: str) -> None:
        """End a stage."""
        now = time.perf_counter()
        self.seconds[f"seconds/{stage}"] = now - self._last
        self._last = now


def _start(run: Run) -> int:
    """Begin a run: the checkpoint of update 0 is where it all starts."""
    if run.journal.last() >= 0 or latest_checkpoint(run.checkpoints):
        raise TrainingError(f"{run.folder} holds a run already; go on with --resume, or choose another folder")
    save_checkpoint(run.checkpoints, 0, run.learner, run.tokenizer, {"seed": run.config.seed})
    run.learner.hold_reference(run.learner.model.state_dict())
    return 0


def _resume(run: Run) -> int:
    """Go back to the last checkpoint, and forget what came after it: it will come again, the same."""
    path = latest_checkpoint(run.checkpoints)
    if path is None:
        return _start(run)
    number = int(load_checkpoint(path, run.learner)["update"])
    run.learner.hold_reference(checkpoint_weights(run.checkpoints / "0000"))
    run.journal.forget_after(number)
    run.engine.load(run.learner.weights(), version=number)
    run.canary.check(run.engine, run.learner.model, version=number)
    return number


def _survivors(played: Sequence[Trajectory], number: int, least: float) -> list[Trajectory]:
    """Attempts that ended without a fault; too few of them stop the run, with the causes."""
    survivors = [trajectory for trajectory in played if trajectory.stop not in FAULTS and trajectory.steps]
    if len(survivors) < max(least * len(played), 1):
        causes = Counter(
            trajectory.error or trajectory.stop.value for trajectory in played if trajectory.stop in FAULTS
        )
        listed = "; ".join(f"{count} x {cause}" for cause, count in causes.most_common(3))
        raise TrainingError(
            f"update {number}: only {len(survivors)} of {len(played)} attempts survived ({listed}); "
            "mend the environment"
        )
    return survivors


def _metrics(
    played: Sequence[Trajectory], survivors: Sequence[Trajectory], compared: float, totals: Totals
) -> dict[str, float]:
    steps = [step for trajectory in survivors for step in trajectory.steps]
    return {
        "rollout/success": sum(t.scores.get("success", 0.0) for t in survivors) / len(survivors),
        "rollout/return": sum(t.scores["return"] for t in survivors) / len(survivors),
        "rollout/steps": len(steps) / len(survivors),
        "rollout/valid": sum(step.valid for step in steps) / len(steps),
        "rollout/faults": float(len(played) - len(survivors)),
        "credit/compared": float(compared),
        "learner/tokens": float(totals.tokens),
    }
