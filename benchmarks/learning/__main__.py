"""Do the methods learn? Several from the same start, on the same tasks, over several seeds.

    python -m benchmarks.learning [--suite dense|sparse|llm] [--seeds 5] [--processes 2] [--write FILE]

The suite `dense` compares GRPO, GiGPO and HGPO where a fair share of rollouts succeeds from the start; `sparse`
compares R^3, taken whole and apart, with GRPO, DAPO and HGPO where hardly any does; `llm` compares R^3 with GRPO on a
pretrained model (`--model`), at equal sampled tokens. Each environment has a run file
below the suite's folder. For every seed the model is warm-started once; each method then goes on from these weights,
with the same tasks, rollouts and seeds of sampling, until the suite's budget of environment steps is spent: rollouts
with help in their prompt count. Success is that of the rollouts without help that the updates sample (training tasks,
temperature 1); beside it stands success on the held-out task set before and after. Over the seeds: interquartile mean
with a 95 % bootstrap interval (Agarwal et al. 2021, arXiv:2108.13264). The *level* is the mean success of GRPO's last
five updates; what others needed to reach it is given in environment steps and in sampled tokens.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.learning.runs import go_on, make_start
from benchmarks.learning.suites import SUITES, environments
from benchmarks.learning.summary import report, summary
from benchmarks.result_file import read_commit


def measure(options: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """Every start, then every run from it, as many at a time as there are processes."""
    suite, named = SUITES[options.suite], options.environments
    paths = [path for path in environments(options.suite) if named is None or path.stem in named]
    starts = [
        {
            "path": str(path),
            "environment": path.stem,
            "seed": seed,
            "model": options.model,
            "start": str(folder / path.stem / str(seed)),
            "budget": suite.budget.get(path.stem),
            "unit": suite.unit,
        }
        for seed in range(options.seeds)
        for path in paths
    ]
    with ProcessPoolExecutor(options.processes, mp_context=get_context("spawn")) as pool:
        before = list(pool.map(make_start, starts))
        jobs = [
            {
                **start,
                "before": success,
                "method": method,
                "settings": settings,
                "folder": f"{start['start']}-{method.replace(' ', '-')}",
            }
            for start, success in zip(starts, before, strict=True)
            for method, settings in suite.methods.items()
        ]
        # The long ones first, so that none is left over at the end.
        jobs.sort(key=lambda job: -(job["budget"] or 0))
        return [_keep_record(one, folder) for one in pool.map(go_on, jobs)]


def _keep_record(record: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Write each record down as it comes, for whoever stops before the end."""
    with (folder / "records.jsonl").open("a") as file:
        file.write(json.dumps(record) + "\n")
    return record


def _lines(content: dict[str, Any]) -> str:
    """As JSON, a line for each row of the summary and each run: curves are long."""
    head = [
        f" {json.dumps(name)}: {json.dumps(value)}" for name, value in content.items() if not isinstance(value, list)
    ]
    lists = [
        f" {json.dumps(name)}: [\n  " + ",\n  ".join(json.dumps(row) for row in value) + "\n ]"
        for name, value in content.items()
        if isinstance(value, list)
    ]
    return "{\n" + ",\n".join(head + lists) + "\n}\n"


def main() -> None:
    """Run everything, print a table, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", choices=list(SUITES), default="dense")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--environments", nargs="*", help="some of the suite's environments, by name")
    parser.add_argument("--model", help="a pretrained model, for the suite `llm`")
    parser.add_argument("--folder", type=Path, help="where the runs go; otherwise they are thrown away")
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as thrown_away:
        folder = options.folder or Path(thrown_away)
        folder.mkdir(parents=True, exist_ok=True)
        records = measure(options, folder)
    order = list(SUITES[options.suite].methods)
    records.sort(key=lambda one: (one["environment"], order.index(one["method"]), one["seed"]))
    table = summary(records, SUITES[options.suite].baseline)
    report(table)
    if options.write:
        content = {
            "command": "python -m benchmarks.learning " + " ".join(sys.argv[1:]),
            "commit": read_commit(),
            "python": platform.python_version(),
            "processor": platform.processor() or platform.machine(),
            "summary": table,
            "runs": records,
        }
        options.write.write_text(_lines(content))


if __name__ == "__main__":
    main()
