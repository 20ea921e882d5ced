"""Run every example completely: the metrics of every update that alarms use, and its evaluations.

    python -m benchmarks.example_metrics [NAME ...] [--jobs 8] [--parts FOLDER]
        [--write benchmarks/results/example_metrics.json]

If an example cannot run here (a package, files, a server or a GPU is missing), the reason is reported. Each finished
example has a file in the folder of parts and is not run again. That file and the recorded result are valid as long as
the example does not change. A test checks the default alarms on the result: none of them may fire.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parents[1] / "examples"
ELSEWHERE = ("alfworld", "gsm8k", "webshop", "judged_lookup", "openenv")
"""Examples that need a publisher's files, a GPU or a server."""
WATCHED = (
    "rollout/entropy",
    "rollout/success",
    "rollout/return",
    "rollout/response_tokens",
    "rollout/cut_off",
    "rollout/truncated",
    "rollout/zero_variance",
    "advantage/groups_with_signal",
    "loss/kl_to_reference",
    "loss/mismatch_size",
    "loss/kl_to_old",
)
"""What is kept of an update."""
MAX_SECONDS = 1500
"""How long an example may take."""


def name_example(path: Path) -> str:
    """The name of an example: its path below examples/, without suffix."""
    return path.relative_to(EXAMPLES).with_suffix("").as_posix()


def play_example(name: str) -> dict[str, Any]:
    """Run an example; returns its curves, and success on its task set by update with the number of tasks."""
    from groupwise.store.journal import Journal
    from groupwise.store.run_folder import RunPaths
    from groupwise.training.config.run_file import load_run
    from groupwise.training.loop import train

    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        # A run whose results are not looked at needs no checkpoints on the way.
        config = load_run(
            EXAMPLES / f"{name}.toml", overrides=["device=cpu", "threads=1", "training.checkpoint_every=1000"]
        )
        train(config, folder)
        with Journal(RunPaths(Path(folder)).journal, read_only=True) as journal:
            curves = {
                metric: [[number, shorten(value)] for number, value in journal.curve(metric)] for metric in WATCHED
            }
            rows = [row for row in journal.evaluations() if row.split == config.evaluation.split]
    by_update: dict[int, list[float]] = {}
    for row in rows:
        by_update.setdefault(row.number, []).append(row.outcome if row.success is None else row.success)
    return {
        "seconds": round(time.monotonic() - began),
        "file": digest_file(EXAMPLES / f"{name}.toml"),
        "metrics": {metric: curve for metric, curve in curves.items() if curve},
        "evaluations": [
            [number, shorten(sum(scores) / len(scores)), len(scores)] for number, scores in by_update.items()
        ],
    }


def digest_file(path: Path) -> str:
    """The start of the SHA-256 of a run file and the one it extends, without comments."""
    from groupwise.training.config.run_file import read_run_file

    content = json.dumps(read_run_file(path).content, sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:12]


def shorten(value: float) -> float:
    """A number to five digits, which is more than any threshold needs.

    >>> shorten(0.123456789)
    0.12346
    """
    return float(f"{value:.5g}")


def name_part(name: str, parts: Path) -> Path:
    """The file for the result of an example."""
    return parts / f"{name.replace('/', '.')}.json"


def read_part(name: str, parts: Path) -> dict[str, Any] | None:
    """The result of an example; None if there is none, or the example has changed since."""
    part = name_part(name, parts)
    content: dict[str, Any] | None = json.loads(part.read_text(encoding="utf-8")) if part.is_file() else None
    return content if content and content.get("file") == digest_file(EXAMPLES / f"{name}.toml") else None


def play_apart(name: str, parts: Path) -> None:
    """Run an example in its own process, unless its result exists; the result goes into a file."""
    part = name_part(name, parts)
    if read_part(name, parts) is not None:
        return
    part.unlink(missing_ok=True)
    command = [sys.executable, "-m", "benchmarks.example_metrics", "--play", name, "--parts", str(parts)]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=MAX_SECONDS, check=False)
        last = (ended.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        print(name, "done" if part.is_file() else f"failed: {last}", flush=True)
        if not part.is_file():
            part.with_suffix(".failed").write_text(last + "\n", encoding="utf-8")
    except subprocess.TimeoutExpired:
        print(name, f"is not done after {MAX_SECONDS} s", flush=True)


def join_parts(names: Sequence[str], parts: Path, recorded: Mapping[str, Any]) -> dict[str, Any]:
    """All results by name, from now or `recorded`, and the examples without one."""
    played, missing = {}, {}
    for name in names:
        part = read_part(name, parts)
        failure = name_part(name, parts).with_suffix(".failed")
        if part is not None:
            played[name] = part
        elif name in recorded and recorded[name]["file"] == digest_file(EXAMPLES / f"{name}.toml"):
            played[name] = recorded[name]
        else:
            missing[name] = failure.read_text(encoding="utf-8").strip() if failure.is_file() else "it was not run"
    return {"command": "python -m benchmarks.example_metrics", "examples": played, "missing": missing}


def write_lines(result: dict[str, Any], path: Path) -> None:
    """Write the result as JSON with one line per example."""
    lines = [f"    {json.dumps(name)}: {json.dumps(example)}" for name, example in result["examples"].items()]
    rest = [f"  {json.dumps(name)}: {json.dumps(result[name])}" for name in ("command", "missing")]
    path.write_text(
        "{\n" + ",\n".join([*rest, '  "examples": {\n' + ",\n".join(lines) + "\n  }"]) + "\n}\n", encoding="utf-8"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="examples; all of them otherwise")
    parser.add_argument("--jobs", type=int, default=1, help="how many run at a time")
    parser.add_argument("--parts", type=Path, default=Path("runs/example_metrics"), help="folder of what was run")
    parser.add_argument("--play", help="run this one here")
    parser.add_argument("--join", action="store_true", help="run nothing, and join what was run")
    parser.add_argument("--write", type=Path, help="write the result as JSON")
    options = parser.parse_args()
    options.parts.mkdir(parents=True, exist_ok=True)
    if options.play:
        part = name_part(options.play, options.parts)
        draft = part.with_suffix(".tmp")
        draft.write_text(json.dumps(play_example(options.play)), encoding="utf-8")
        draft.replace(part)
        return
    files = [path for path in sorted(EXAMPLES.rglob("*.toml")) if path.parent.name != "papers"]
    names = [name_example(path) for path in files]
    wanted = [name for name in options.names or names if name not in ELSEWHERE]
    if not options.join:
        with ThreadPoolExecutor(options.jobs) as pool:
            list(pool.map(lambda name: play_apart(name, options.parts), wanted))
    if options.write:
        is_there = options.write.is_file()
        recorded = json.loads(options.write.read_text(encoding="utf-8"))["examples"] if is_there else {}
        write_lines(join_parts(names, options.parts, recorded), options.write)


if __name__ == "__main__":
    main()
