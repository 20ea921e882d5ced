"""Tries the built wheel as a stranger would: in an environment of its own, first without the trainer, then with it.

    python tests/try_wheel.py dist [--train TORCH]

Needs a package index. With `--train` the extra is installed too, `TORCH` (such as torch==2.13.0) first and by itself.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
TASK = ("--task", "pick_two_obj_and_place-Book-None-Desk-302", "--rollout", "7", "--step", "8")
IN_PYTHON = """
import groupwise
folder = groupwise.train(
    {"algorithm": {"method": "hgpo"}, "env": {"kind": "household", "max_steps": 3}, "model": {"kind": "tiny"},
     "training": {"updates": 1, "tasks": 2}, "evaluation": {"tasks": 0}}, "runs/first")
print(folder)
"""


def call(*command: str, where: Path, fails: bool = False) -> str:
    """Run a command where the project is not; what it printed. An exit that was not expected ends this script."""
    ran = subprocess.run(command, cwd=where, capture_output=True, text=True, timeout=900)
    if (ran.returncode != 0) != fails:
        sys.exit(f"{' '.join(command)}\nended with {ran.returncode}:\n{ran.stdout}\n{ran.stderr}")
    return ran.stdout + ran.stderr


def see(condition: bool, what: str) -> None:
    """End the script where something is not as it should be."""
    if not condition:
        sys.exit(f"the wheel is wrong: {what}")


def try_reading(binaries: Path, place: Path) -> None:
    """What works without torch: methods, audit, explain, check; training says what to install."""
    command, rollouts = str(binaries / "groupwise"), str(ROOT / "examples" / "alfworld_rollouts.jsonl")
    see("hgpo" in call(command, "methods", where=place), "`methods` does not list hgpo")
    see("hgpo" in call(command, "audit", rollouts, where=place), "`audit` says nothing of hgpo")
    explained = json.loads(call(command, "explain", rollouts, *TASK, "--method", "hgpo", "--json", where=place))
    see(bool(explained), "`explain --json` is empty")
    refusal = call(command, "train", str(ROOT / "examples" / "identity.toml"), where=place, fails=True)
    see("pip install 'groupwise[train]'" in refusal, f"`train` without torch says {refusal!r}")
    typed = "import groupwise, pathlib; print((pathlib.Path(groupwise.__file__).parent / 'py.typed').is_file())"
    see("True" in call(str(binaries / "python"), "-c", typed, where=place), "py.typed is not in it")


def try_training(binaries: Path, place: Path) -> None:
    """What the extra brings: a run by the command, and one from Python."""
    command = str(binaries / "groupwise")
    call(command, "train", str(ROOT / "examples" / "identity.toml"), "--out", "runs/identity", "--plain", where=place)
    see((place / "runs" / "identity" / "journal.sqlite").is_file(), "the run wrote no journal")
    call(command, "report", "runs/identity", where=place)
    see("runs/first" in call(str(binaries / "python"), "-c", IN_PYTHON, where=place), "groupwise.train wrote no run")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dist", type=Path)
    parser.add_argument("--train", metavar="TORCH")
    chosen = parser.parse_args()
    wheels = sorted(chosen.dist.resolve().glob("*.whl"))
    see(len(wheels) == 1, f"{chosen.dist} has {len(wheels)} wheels; build one into an empty folder")
    constraints = ("--constraint", str(ROOT / "constraints.txt"))
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        venv.create(place / "env", with_pip=True)
        binaries = place / "env" / "bin"
        install = (str(binaries / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        call(*install, *constraints, str(wheels[0]), where=place)
        try_reading(binaries, place)
        sys.stdout.write("the wheel alone audits and explains\n")
        if chosen.train:
            call(*install, chosen.train, where=place)
            call(*install, *constraints, f"{wheels[0]}[train]", where=place)
            try_training(binaries, place)
            sys.stdout.write("with its extra it trains\n")


if __name__ == "__main__":
    main()
