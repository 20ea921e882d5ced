"""Memory and speed of reading a large rollouts file.

    python -m benchmarks.audit_memory --gigabytes 5

writes a rollouts file to a temporary folder, runs `groupwise audit` on it in its own process, and reports that
process's peak resident memory and its speed. Rows of 64 tasks are interleaved, as a vectorized environment would write
them, so no group is contiguous.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.result_file import write_result

NUM_ROLLOUTS = 8
NUM_STEPS = 12
TASKS_AT_A_TIME = 64
NUM_TEXTS = 2_000
WORDS = ("You", "see", "a", "cabinet", "drawer", "fridge", "mug", "plate", "on", "the", "counter", "and", "nothing.\n")


@dataclass(frozen=True)
class Measurement:
    """Time and memory of one process."""

    seconds: float
    cpu_seconds: float
    peak_megabytes: float
    output: str


def write_file(path: Path, num_bytes: int, *, tokens: int = 60, seed: int = 0) -> int:
    """Write a rollouts file of about `num_bytes` and return its rows.

    Rows carry an observation, a state, an action and the ids and log-probs of `tokens` sampled tokens.
    """
    rng = random.Random(seed)
    rows = written = 0
    with path.open("w", encoding="utf-8") as file:
        written += file.write(json.dumps({"format": "groupwise.rollouts", "version": 2, "meta": {"seed": seed}}) + "\n")
        for lines in _batches(rng, tokens):
            written += file.write("".join(lines))
            rows += len(lines)
            if written >= num_bytes:
                return rows
    raise AssertionError("the batches never end")


def _batches(rng: random.Random, tokens: int) -> Iterator[list[str]]:
    """Endless batches of lines: the steps of all rollouts of 64 tasks, shuffled."""
    observations = [json.dumps(_text(rng, 220)) for _ in range(NUM_TEXTS)]
    states = [json.dumps(_text(rng, 30)) for _ in range(NUM_TEXTS)]
    actions = [json.dumps(_text(rng, 12)) for _ in range(NUM_TEXTS)]
    ids = [json.dumps([rng.randrange(150_000) for _ in range(tokens)]) for _ in range(NUM_TEXTS)]
    logps = [json.dumps([round(-rng.expovariate(2.0), 4) for _ in range(tokens)]) for _ in range(NUM_TEXTS)]
    first = 0
    while True:
        lines = []
        for task in range(first, first + TASKS_AT_A_TIME):
            for rollout in range(NUM_ROLLOUTS):
                outcome = float(rng.random() < 0.4)
                for index in range(NUM_STEPS):
                    # A task has few states of its own, so that steps of different rollouts meet.
                    state = states[(task * 7 + index * 3 + rng.randrange(3)) % NUM_TEXTS]
                    pick = rng.randrange(NUM_TEXTS)
                    reward = outcome if index == NUM_STEPS - 1 else 0.0
                    lines.append(
                        f'{{"task": "bench-train-{task:012d}", "rollout": {rollout}, "step": {index}, '
                        f'"state": {state}, "observation": {observations[pick]}, "action": {actions[pick]}, '
                        f'"reward": {reward}, "well_formed": true, "accepted": true, "outcome": {outcome}, '
                        f'"response_ids": {ids[pick]}, "logp_behaviour": {logps[pick]}}}\n'
                    )
        rng.shuffle(lines)
        yield lines
        first += TASKS_AT_A_TIME


def _text(rng: random.Random, words: int) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(words))


def measure(command: Sequence[str]) -> Measurement:
    """Run a command and scorer it.

    Linux counts a child's peak memory from the size of its parent. So this module imports nothing large, and a child
    process writes the file too.
    """
    read, write = os.pipe()
    start = time.perf_counter()
    process = os.posix_spawn(
        command[0],
        command,
        os.environ,
        file_actions=[(os.POSIX_SPAWN_DUP2, write, 1), (os.POSIX_SPAWN_CLOSE, read)],
    )
    os.close(write)
    with os.fdopen(read) as pipe:
        output = pipe.read()
    _, status, usage = os.wait4(process, 0)
    seconds = time.perf_counter() - start
    if status:
        raise SystemExit(f"{' '.join(command)} failed with status {os.waitstatus_to_exitcode(status)}")
    # Linux counts in kilobytes, macOS in bytes.
    peak = usage.ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)
    return Measurement(
        seconds=seconds, cpu_seconds=usage.ru_utime + usage.ru_stime, peak_megabytes=peak, output=output.strip()
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=5.0, help="size of the file (default: 5)")
    parser.add_argument("--tokens", type=int, default=60, help="sampled tokens a row, with ids and log-probs")
    parser.add_argument("--folder", type=Path, default=None, help="where the temporary folder is made")
    parser.add_argument("--result", type=Path, default=None, help="write the result as JSON")
    parser.add_argument("--write", type=Path, default=None, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.write is not None:
        print(write_file(options.write, int(options.gigabytes * 1e9), tokens=options.tokens))
    else:
        report(options)


def report(options: argparse.Namespace) -> None:
    again = [sys.executable, "-m", "benchmarks.audit_memory"]
    sizes = ["--gigabytes", str(options.gigabytes), "--tokens", str(options.tokens)]
    with TemporaryDirectory(prefix="groupwise-bench-", dir=options.folder) as folder:
        path = Path(folder) / "rollouts.jsonl"
        rows = int(measure([*again, *sizes, "--write", str(path)]).output)
        size = path.stat().st_size / 1e6
        command = "from groupwise.cli.main import main; main()"
        audit = measure([sys.executable, "-c", command, "audit", str(path), "--json"])
    census = json.loads(audit.output)["census"]
    result = {
        "command": f"python -m benchmarks.audit_memory --gigabytes {options.gigabytes:g} --tokens {options.tokens}",
        "file_megabytes": round(size),
        "rows": rows,
        "audited_steps": census["steps"],
        "audited_tasks": census["tasks"],
        "seconds": round(audit.seconds, 1),
        "core_seconds": round(audit.cpu_seconds, 1),
        "megabytes_per_core_second": round(size / audit.cpu_seconds, 1),
        "peak_megabytes": round(audit.peak_megabytes),
    }
    print(json.dumps(result, indent=2))
    write_result(result, options.result)


if __name__ == "__main__":
    main()
