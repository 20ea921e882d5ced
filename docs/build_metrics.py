"""Write docs/reference/metrics.md: every metric of a run, from the table in training/metrics.toml.

python docs/build_metrics.py [--check]
"""

from __future__ import annotations

import argparse
import sys
from itertools import groupby
from pathlib import Path

from groupwise.training.metrics import EXTRA, METRICS

PAGE = Path(__file__).parent / "reference" / "metrics.md"
SECTIONS = {
    "rollout": "What the update's rollouts look like. Rollouts that ended with an error are not counted, "
    "unless the metric says so.",
    "advantage": "Advantages and groups, over all steps.",
    "replay": "The effect of past rollouts, if the algorithm replays them.",
    "hint": "The effect of rollouts with a hint, if there are any.",
    "scorers": "The cost of scorers, if the algorithm has them: model and judge calls before the advantages.",
    "judge": "Calls of the judge, if it is a function or a server.",
    "shaping": "The effect of group reward shaping, if the algorithm has it.",
    "learner": "What the optimizer did.",
    "critic": "What the critic learned, if the algorithm has one.",
    "weights": "Whether engine and learner have the same weights.",
    "loss": "Values of the loss, over the tokens that trained. The parts of the loss decide which ones there are.",
    "replicas": "What servers did, if the engine has servers. `N` is the number of a server, from 0. Like seconds, "
    "these values differ from run to run.",
    "evaluation": "Results of an evaluation, as trackers get them. The journal has each rollout. If the run file names "
    "task sets, metrics begin with `evaluation/NAME/`, and those of a category with `evaluation/NAME/CATEGORY/`.",
    "seconds": "Time per stage of the update.",
    "speed": "Speed. Like seconds, these values differ from run to run.",
}
"""Each namespace in a sentence."""


def page() -> str:
    """The whole page."""
    sections = "\n".join(
        section(name, list(names)) for name, names in groupby(METRICS, key=lambda name: name.partition("/")[0])
    )
    return (
        "# Metrics\n\n<!-- Written by docs/build_metrics.py from training/metrics.toml. Do not edit by hand. -->\n"
        "\n"
        "Every update writes these metrics to the journal of the run, and sends them to the trackers. "
        "`groupwise report` draws them, and\n`groupwise inspect` lists them. A metric that could not be measured is "
        f"absent, never 0. A part of your own may log names that begin with\n`{EXTRA}`. All other logged names are on "
        "this page.\n\n"
        f"{sections}"
    )


def section(name: str, names: list[str]) -> str:
    """The table of one namespace."""
    rows = "\n".join(_row(metric) for metric in names)
    head = "| metric | what it is | unit or range | when it looks bad |\n|---|---|---|---|"
    return f"## {name}\n\n{SECTIONS[name]}\n\n{head}\n{rows}\n"


def _row(name: str) -> str:
    cells = (f"`{name}`", *(text.replace("|", "\\|") for text in METRICS[name]))
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Write the page; with --check, report whether it is stale."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit with status 1 where the page is out of date")
    if parser.parse_args().check:
        sys.exit(not PAGE.exists() or PAGE.read_text(encoding="utf-8") != page())
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
