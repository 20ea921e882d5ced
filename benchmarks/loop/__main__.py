"""Rollouts a second, end to end, against TRL's GRPOTrainer on a CPU, and where our time goes.

    python -m benchmarks.loop [--python-trl PATH] [--write benchmarks/results/loop.json]    (`make bench-loop`)

Both load one tiny Llama and its tokenizer from one folder and train it, in float32 and by Dr. GRPO, on the same
single-turn tasks (`lookup` with the info given, once with worked examples in the prompt): 8 tasks of 8 rollouts an
update, one optimizer step each, one reward function. No response may end early, so that both sample and train equally
many tokens. Ours is the loop as `groupwise train` runs it, with journal, weight check and checkpoints as they are by
default; TRL writes neither logs nor checkpoints. Each measurement is a process of its own, ours and theirs by turns;
the first updates of each are left out; medians over the repeats. Processor seconds stand beside wall time: with one
thread, other work on the machine hardly changes them. Without --python-trl, TRL's environment is built under .peers, as
for conformance.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import torch
import transformers

from benchmarks.loop.job import ROLLOUTS, Job, tasks_path
from benchmarks.loop.task import ShownLookup
from benchmarks.result_file import write_result
from conformance.with_peers import ROOT, interpreter
from groupwise.models import TinyModel
from groupwise.rollout import Window
from groupwise.rollout.prompts import Prompter, PromptTemplate

TASKS = 8
WARM, UPDATES = 5, 10
"""Whole rounds of the default five updates between checkpoints, so that the timed ones hold their share of these."""
CASES = ((16, 5, False), (16, 0, False), (64, 0, False), (16, 0, True))
"""Tokens of a response, worked examples in the prompt, and whether there is a KL penalty. The first is an agent's
shape, a long prompt and a short action, and the one that the targets are set for; the others show where sharing pays
less."""
MODEL_STAGES = ("rollout: model", "learn: model", "weight sync: model (weight check)")
CLOCKS = ("seconds", "core_seconds")
TARGET, MAX_OUTSIDE = 3.0, 0.1


def make_model(folder: Path) -> None:
    """The model and the tokenizer that both load."""
    model, tokenizer = TinyModel().open(words=ShownLookup().vocabulary(), seed=0)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def write_tasks(folder: Path, examples: int) -> int:
    """The tasks that TRL is given, whose text must be our tokens; the length of a prompt."""
    env, tokenizer = ShownLookup(examples=examples), transformers.AutoTokenizer.from_pretrained(folder)
    prompter = Prompter(tokenizer, template=PromptTemplate(), history=Window(), instruction=env.instruction())
    asked: dict[str, list[str]] = {"prompt": [], "asked": []}
    lengths = set()
    for task in env.task_set("train")[:512]:
        seen = env.open(task).observe()
        ids = prompter.prompt(prompter.encode_opening(seen.goal), [], seen)
        text = tokenizer.decode(ids)
        assert tuple(tokenizer(text).input_ids) == ids, f"TRL would read other tokens than ours: {text}"
        asked["prompt"].append(text)
        asked["asked"].append(seen.text)
        lengths.add(len(ids))
    tasks_path(folder, examples).write_text(json.dumps(asked))
    (length,) = lengths
    return length


def measure(python: Path, module: str, job: Job) -> dict[str, Any]:
    """Run a job in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.json"
        Job(**{**vars(job), "folder": f"{folder}/run"}).save(path)
        environment = {
            **os.environ,
            "HF_HUB_OFFLINE": "1",
            "TRL_EXPERIMENTAL_SILENCE": "1",
            "OMP_NUM_THREADS": str(job.threads),
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),
        }
        command = [str(python), "-W", "ignore", "-m", f"benchmarks.loop.{module}", str(path)]
        answer = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    if answer.returncode:
        raise SystemExit(f"{module} failed with {python}:\n{answer.stderr[-3000:]}")
    result: dict[str, Any] = json.loads(answer.stdout.splitlines()[-1])
    return result


def summary(results: Sequence[Mapping[str, Any]], job: Job) -> dict[str, Any]:
    """Medians over repeats, for one update."""
    seconds = statistics.median(one["seconds"] for one in results)
    return {
        "rollouts_per_second": job.rollouts / seconds,
        "seconds": seconds,
        "core_seconds": statistics.median(one["core_seconds"] for one in results),
        "stages": {name: statistics.median(one["stages"][name] for one in results) for name in results[0]["stages"]},
    }


def compare(pythons: Mapping[str, Path], job: Job, repeats: int) -> dict[str, Any]:
    """Ours and theirs by turns."""
    results_of: dict[str, list[dict[str, Any]]] = {"ours": [], "with_trl": []}
    for repeat in range(repeats):
        for module, results in results_of.items():
            results.append(measure(pythons[module], module, job))
            wall, core = results[-1]["seconds"], results[-1]["core_seconds"]
            print(f"  {repeat + 1} {module}: {wall:.3f} s an update, {core:.3f} s of the processor", flush=True)
    ours, theirs = (summary(results_of[module], job) for module in results_of)
    pairs = list(zip(results_of["with_trl"], results_of["ours"], strict=True))
    in_model = sum(ours["stages"].get(name, 0.0) for name in MODEL_STAGES)
    return {
        "response_tokens": job.max_tokens,
        "threads": job.threads,
        "kl_penalty": job.kl,
        "rollouts_per_update": job.rollouts,
        "ours": ours,
        "trl": theirs,
        "times_faster": statistics.median(trl["seconds"] / our["seconds"] for trl, our in pairs),
        "times_faster_core_seconds": statistics.median(trl["core_seconds"] / our["core_seconds"] for trl, our in pairs),
        "share_outside_model": 1 - in_model / sum(ours["stages"].values()),
        "pairs": [
            {f"{name}_{clock}": one[clock] for name, one in (("trl", trl), ("ours", our)) for clock in CLOCKS}
            for trl, our in pairs
        ],
        "trl_version": results_of["with_trl"][0]["versions"]["trl"],
    }


def show(case: Mapping[str, Any]) -> None:
    ours, theirs = case["ours"], case["trl"]
    shape = f"{case['prompt_tokens']} + {case['response_tokens']} tokens, {case['threads']} threads"
    print(
        f"{shape}{', KL' if case['kl_penalty'] else ''}: ours {ours['rollouts_per_second']:.0f} rollouts/s, TRL "
        f"{theirs['rollouts_per_second']:.0f}: {case['times_faster']:.2f}x (processor time "
        f"{case['times_faster_core_seconds']:.2f}x); outside the model {case['share_outside_model']:.1%}"
    )
    for name, seconds in ours["stages"].items():
        print(f"    {name:<30}{1000 * seconds:8.1f} ms  {seconds / sum(ours['stages'].values()):6.1%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python-trl", type=Path, help="an interpreter that has TRL already")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--cases", type=int, nargs="+", default=[*range(len(CASES))], help="some of the cases, from 0")
    parser.add_argument("--updates", type=int, default=UPDATES, help="updates that are timed; a multiple of five")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--write", type=Path, help="write the result as JSON")
    options = parser.parse_args()
    pythons = {"ours": Path(sys.executable), "with_trl": options.python_trl or interpreter("trl")}
    busy = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        make_model(Path(folder))
        cases = []
        for threads, (max_tokens, examples, kl) in product(options.threads, [CASES[i] for i in options.cases]):
            prompt_tokens = write_tasks(Path(folder), examples)
            job = Job(
                model=folder,
                folder="",
                threads=threads,
                tasks=TASKS,
                examples=examples,
                max_tokens=max_tokens,
                warm=WARM,
                updates=options.updates,
                kl=kl,
            )
            cases.append({"prompt_tokens": prompt_tokens, **compare(pythons, job, options.repeats)})
            show(cases[-1])
    result = {
        "command": f"python -m benchmarks.loop --repeats {options.repeats} --updates {options.updates} --threads "
        + " ".join(map(str, options.threads))
        + " --cases "
        + " ".join(map(str, options.cases)),
        "machine": f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores, Python {platform.python_version()}, "
        f"torch {torch.__version__}, transformers {transformers.__version__}",
        "load_average_before": round(busy, 1),
        "model": "Llama, hidden 128, 4 layers, 866,432 weights, vocabulary 104, float32",
        "group_size": ROLLOUTS,
        "timed_updates": options.updates,
        "cases": cases,
        "targets": {
            "times_faster": TARGET,
            "times_faster_met": [case["times_faster"] >= TARGET for case in cases],
            "share_outside_model": MAX_OUTSIDE,
            "share_outside_model_met": [case["share_outside_model"] < MAX_OUTSIDE for case in cases],
        },
    }
    print(json.dumps(result["targets"], indent=2))
    write_result(result, options.write)


if __name__ == "__main__":
    main()
