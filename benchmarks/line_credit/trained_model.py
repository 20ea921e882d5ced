"""How well does credit inside an answer tell what its lines were worth to a model that was trained?

    groupwise train examples/worked_sums.toml
    python -m benchmarks.line_credit.trained_model runs/worked_sums [--write benchmarks/results/lines_of_a_model.json]

As `measure`, but the answers are those of a run's last checkpoint, and the probability of a right answer after each
line is the share of `--continuations` rollouts that go on from there, with its own error: the table's correlations are
lower than the true ones, at most by the factor that is told.
"""

from __future__ import annotations

import argparse
import math
import platform
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.line_credit.measure import compare_methods, list_line_ends, print_table
from benchmarks.result_file import write_result
from groupwise.credit import score_trajectory
from groupwise.data.seeds import seed_of
from groupwise.rollout.episodes import Rollout
from groupwise.rollout.scorers import Continuation
from groupwise.training.checkpoints import open_run_at
from groupwise.training.collect.measuring import RunTools
from groupwise.training.config.run_file import load_run
from groupwise.training.run import Run


def measure(run: Run, *, num_tasks: int, num_rollouts: int, continuations: int) -> dict[str, Any]:
    """The correlation of each method's credit with values that were estimated by going on."""
    tools, tasks = RunTools(run, 0), run.config.env.task_set("test")[:num_tasks]
    rollouts = [
        Rollout(task=task, number=number, seed=seed_of(0, task.id, number))
        for task in tasks
        for number in range(num_rollouts)
    ]
    played = run.player.play(rollouts, temperature=run.config.rollout.temperature)
    scored = [score_trajectory(trajectory, run.config.rewards) for trajectory in played]
    groups = [scored[begin : begin + num_rollouts] for begin in range(0, len(scored), num_rollouts)]
    worth, errors = [], []
    for group in groups:
        # The group's own rollouts say little of the beginning: it is gone on from as the ends of lines are.
        places = [(group[0], 0), *((rollout, end) for rollout in group for end in list_line_ends(rollout)[:-1])]
        shares = iter(_estimate(tools, places, continuations))
        first = next(shares)
        for trajectory in group:
            inner = [next(shares) for _ in list_line_ends(trajectory)[:-1]]
            levels = [first, *inner, trajectory.scores["success"]]
            worth.append(np.diff(levels).tolist())
            spread = [level * (1 - level) / continuations for level in levels]  # the last one is known: 0
            errors += [before + after for before, after in pairwise(spread)]
    true = np.array([value for values in worth for value in values])
    spread_of_all = float(np.var(true))
    reliable = math.sqrt(max(1 - float(np.mean(errors)) / spread_of_all, 0.0)) if spread_of_all > 0 else 0.0
    return {"max_correlation": reliable, "continuations": continuations} | compare_methods(groups, worth, tools)


def _estimate(tools: RunTools, places: list[tuple[Any, int]], continuations: int) -> list[float]:
    """The share of right answers among rollouts that go on from the first tokens of recorded ones."""
    begun = [
        Continuation(
            task=trajectory.task,
            forced=trajectory.steps[0].response_ids[:end],
            seed=seed_of(2, trajectory.task.id, trajectory.rollout, end, number),
        )
        for trajectory, end in places
        for number in range(continuations)
    ]
    right = [trajectory.scores["success"] for trajectory in tools.play(begun)]
    return [float(np.mean(right[n : n + continuations])) for n in range(0, len(right), continuations)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="folder of a run on worked_sums")
    parser.add_argument("--tasks", type=int, default=20)
    parser.add_argument("--rollouts", type=int, default=8)
    parser.add_argument("--continuations", type=int, default=256)
    parser.add_argument("--write", type=Path, help="write the result as JSON")
    options = parser.parse_args()
    with open_run_at(load_run(options.run / "config.toml"), options.run, None, read_only=True) as run:
        measured = measure(
            run, num_tasks=options.tasks, num_rollouts=options.rollouts, continuations=options.continuations
        )
    result = {
        "command": f"python -m benchmarks.line_credit.trained_model RUN --tasks {options.tasks} "
        f"--rollouts {options.rollouts} --continuations {options.continuations}",
        "machine": f"{platform.machine()}, Python {platform.python_version()}, NumPy {np.__version__}",
        **measured,
    }
    print_table(result)
    print(f"{options.continuations} continuations a value: no correlation can exceed {result['max_correlation']:.2f}")
    write_result(result, options.write)


if __name__ == "__main__":
    main()
