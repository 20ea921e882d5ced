"""How well does credit inside an answer tell what its lines were worth?

    python -m benchmarks.line_credit.measure [--tasks 100] [--rollouts 8] [--write benchmarks/results/line_credit.json]

Answers to worked sums by a policy whose slips are known, so that the value of a line, the change in the probability of
a right answer, is exact. A line's credit is the mean over its tokens that train, 0 where none does. Printed are
Pearson's correlation with the true values over all lines, and within answers (both less the answer's mean): a method
that gives all lines of an answer the same has 0 there. Intervals: 95 %, bootstrap over tasks. And what it cost:
tokens that measures sampled, for each token of an answer.
"""

from __future__ import annotations

import argparse
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.line_credit.scripted_sums import ScriptedSums
from benchmarks.line_credit.slipping_policy import SlippingPolicy
from benchmarks.result_file import write_result
from groupwise import StepTable, methods
from groupwise.credit import TokenGae
from groupwise.data.records import Trajectory
from groupwise.data.seeds import seed_of
from groupwise.data.segments import FloatArray
from groupwise.data.token_table import TokenTable
from groupwise.envs import WorkedSums
from groupwise.methods.spo_chain import SegmentValues
from groupwise.parts.algorithm import Algorithm
from groupwise.training.collect.measuring import add_info

RESAMPLES = 1000


def list_methods() -> dict[str, Algorithm]:
    """The methods that are compared, by what the table calls them."""
    chain = SegmentValues(uncertain_tokens=1)
    return {
        "dr_grpo": methods.dr_grpo(),
        "gtpo": methods.gtpo(),
        "d3s, at its first shares": methods.d3s(),
        "dcpo": methods.dcpo(),
        "spae": methods.spae(),
        "after_vsrm": methods.after_vsrm(min_tokens=1),
        "spo_chain, 5 uncertain tokens": methods.spo_chain(),
        "spo_chain, 1 uncertain token": methods.spo_chain(uncertain_tokens=1),
        "token_gae, lam 0.95": methods.rloo().model_copy(
            update={"token_credit": TokenGae(lam=0.95), "scorers": (chain,)}
        ),
    }


@dataclass(frozen=True)
class LineNumbers:
    """Numbers of all lines, with the answer and the task that each line belongs to."""

    true: FloatArray
    """What each line was worth."""
    answer: FloatArray
    """Number of its answer."""
    task: FloatArray
    """Number of its task."""


def list_line_ends(trajectory: Trajectory) -> list[int]:
    """Tokens up to the end of each line of an answer; the last line runs to the end of the response."""
    (step,) = trajectory.steps
    return [*step.info["line_ends"][:-1], len(step.response_ids)]


def credit_lines(algorithm: Algorithm, groups: Sequence[Sequence[Trajectory]], tools: Any) -> FloatArray:
    """The credit of each line under a method: the mean over its tokens that train, 0 where none does."""
    for part in algorithm.scorers or ():

        def draw(*path: object) -> np.random.Generator:
            return np.random.default_rng(seed_of(1, *path))

        groups = add_info(part, groups, part(groups, tools, draw=draw))
    trajectories = [trajectory for group in groups for trajectory in group]
    table = StepTable.from_trajectories(trajectories)
    tokens, credit = TokenTable.from_trajectories(table, trajectories), algorithm.credit(table)
    values, trains = credit.by_step().values[tokens.row], np.ones(len(tokens), dtype=np.bool_)
    if algorithm.token_credit is not None:
        made = algorithm.token_credit(algorithm.estimator_table(table), credit.by_step(), tokens)
        values, trains = made.values, made.trains
    trains = trains & algorithm.keep(table, credit)[np.argsort(table.step_of_row)][tokens.row]
    lines = []
    for row, trajectory in enumerate(trajectories):
        place, begin = tokens.find_tokens(row), 0
        for end in list_line_ends(trajectory):
            line = slice(place.start + begin, place.start + end)
            lines.append(float(values[line][trains[line]].mean()) if trains[line].any() else 0.0)
            begin = end
    return np.array(lines)


def correlate(credit: FloatArray, lines: LineNumbers, *, within: bool, seed: int = 0) -> dict[str, float]:
    """Pearson's correlation with the true values, and its interval by resampling tasks; 0 where nothing varies."""
    pairs = np.stack([credit, lines.true])
    if within:
        num = np.bincount(lines.answer.astype(np.int64))
        for row in pairs:
            row -= (np.bincount(lines.answer.astype(np.int64), weights=row) / num)[lines.answer.astype(np.int64)]
    members = [np.flatnonzero(lines.task == task) for task in np.unique(lines.task)]
    rng = np.random.default_rng(seed)
    draws = [
        _pearson(pairs[:, np.concatenate([members[n] for n in rng.integers(len(members), size=len(members))])])
        for _ in range(RESAMPLES)
    ]
    low, high = np.quantile(draws, [0.025, 0.975])
    return {"r": _pearson(pairs), "low": float(low), "high": float(high)}


def _pearson(pairs: FloatArray) -> float:
    x, y = pairs - pairs.mean(axis=1, keepdims=True)
    size = float(np.sqrt((x @ x) * (y @ y)))
    return float(x @ y) / size if np.abs(x).max() > 1e-12 and size > 0 else 0.0


def compare_methods(
    groups: Sequence[Sequence[Trajectory]], worth: Sequence[Sequence[float]], tools: Any
) -> dict[str, Any]:
    """The correlation of each method's credit with what lines were worth, given answer by answer."""
    answers = [trajectory for group in groups for trajectory in group]
    tasks = [number for number, group in enumerate(groups) for _ in group]
    lines = LineNumbers(
        true=np.array([value for values in worth for value in values]),
        answer=np.array([number for number, values in enumerate(worth) for _ in values]),
        task=np.array([task for task, values in zip(tasks, worth, strict=True) for _ in values]),
    )
    num_tokens = sum(len(trajectory.steps[0].response_ids) for trajectory in answers)
    rows = {}
    for name, algorithm in list_methods().items():
        before = tools.cost()["scorers/sampled_tokens"]
        credit = credit_lines(algorithm, groups, tools)
        rows[name] = {
            "all_lines": correlate(credit, lines, within=False),
            "within_answers": correlate(credit, lines, within=True),
            "sampled_for_each_token": (tools.cost()["scorers/sampled_tokens"] - before) / num_tokens,
        }
    right = sum(trajectory.scores["success"] for trajectory in answers) / len(answers)
    return {"answers": len(answers), "lines": len(lines.true), "share_right": right, "methods": rows}


def measure(num_tasks: int, num_rollouts: int) -> dict[str, Any]:
    """The correlation of each method's credit with the truth, under the policy whose slips are known."""
    part, policy = WorkedSums(num_terms=6), SlippingPolicy()
    tasks = part.task_set("test")[:num_tasks]
    sums = ScriptedSums(part, policy, tasks)
    groups = [
        [sums.rollout(task, n, np.random.default_rng(seed_of(0, task.id, n))) for n in range(num_rollouts)]
        for task in tasks
    ]
    worth = [sums.line_values(trajectory) for group in groups for trajectory in group]
    return compare_methods(groups, worth, sums)


def print_table(result: dict[str, Any]) -> None:
    """Show a result as one table."""
    table = Table(title=f"{result['lines']} lines of {result['answers']} answers, {result['share_right']:.1%} right")
    for heading in ("method", "r, all lines", "r, within answers", "sampled tokens for each"):
        table.add_column(heading)
    for name, row in result["methods"].items():
        shown = ["{r:.2f} [{low:.2f}, {high:.2f}]".format(**row[which]) for which in ("all_lines", "within_answers")]
        table.add_row(name, *shown, f"{row['sampled_for_each_token']:.1f}")
    Console(width=120).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=100)
    parser.add_argument("--rollouts", type=int, default=8)
    parser.add_argument("--write", type=Path, help="write the result as JSON")
    options = parser.parse_args()
    result = {
        "command": f"python -m benchmarks.line_credit.measure --tasks {options.tasks} --rollouts {options.rollouts}",
        "machine": f"{platform.machine()}, Python {platform.python_version()}, NumPy {np.__version__}",
        **measure(options.tasks, options.rollouts),
    }
    print_table(result)
    write_result(result, options.write)


if __name__ == "__main__":
    main()
