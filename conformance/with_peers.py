"""Ask groupwise, verl and TRL the same cases, each in its own environment, and write conformance/README.md.

`python -m conformance.with_peers [--python-verl PATH] [--python-trl PATH]`, run from the repository root with an
interpreter that can import groupwise. Without a path, the peer's environment is built under .peers/ on first use and
kept; it holds the versions pinned below.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".peers"
PAGE = ROOT / "conformance" / "README.md"

PACKAGES = {
    # The v1 trainer, whose advantage step is asked, imports the last four; `verl` alone does not bring them.
    "verl": ["verl==0.9.1", "TransferQueue==0.1.11", "cachetools", "uvicorn", "fastapi"],
    "trl": ["trl==1.16.0"],
}
TORCH = "torch==2.13.0"
SUBJECTS = {"ours": "ours", "verl": "verl_core_algos", "trl": "trl_grpo"}


def interpreter(peer: str) -> Path:
    """The Python of a peer's environment, which is built unless it is complete."""
    home = FOLDER / peer
    python = home / "bin" / "python"
    done = home / "complete"
    wanted = " ".join([TORCH, *PACKAGES[peer]])
    if not (done.exists() and done.read_text() == wanted):
        print(f"building {home.relative_to(ROOT)}: {wanted}", flush=True)
        venv.create(home, with_pip=True, clear=True)
        # torch first, so that no dependency of the peer picks another version of it.
        for packages in ([TORCH], [TORCH, *PACKAGES[peer]]):
            subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
        done.write_text(wanted)
    return python


def ask(python: Path, subject: str, result: Path) -> None:
    """Put all cases to a subject in another process."""
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TRL_EXPERIMENTAL_SILENCE": "1"}
    command = [str(python), "-W", "ignore", "-m", "conformance.run", "--subject", subject, "--out", str(result)]
    print(f"asking {subject}", flush=True)
    answer = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    if answer.returncode:
        raise SystemExit(f"{subject} could not be asked with {python}:\n{answer.stderr}")
    print(answer.stdout.splitlines()[-1], flush=True)


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m conformance.with_peers", description=__doc__.split("\n")[0])
    parser.add_argument("--python-verl", type=Path, help="an interpreter that has verl already")
    parser.add_argument("--python-trl", type=Path, help="an interpreter that has TRL already")
    options = parser.parse_args(words)
    results = FOLDER / "results"
    results.mkdir(parents=True, exist_ok=True)
    pythons = {
        "ours": Path(sys.executable),
        "verl": options.python_verl or interpreter("verl"),
        "trl": options.python_trl or interpreter("trl"),
    }
    files = [results / f"{name}.json" for name in pythons]
    for (name, python), file in zip(pythons.items(), files, strict=True):
        ask(python, SUBJECTS[name], file)
    table = [sys.executable, "-m", "conformance.run", "--table", *map(str, files), "--write", str(PAGE)]
    subprocess.run(table, cwd=ROOT, check=True)
    print(f"wrote {PAGE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
