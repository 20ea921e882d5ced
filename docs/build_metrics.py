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
    "rollout": "What the update's rollouts look like. Statistics are over the rollouts that no fault ended.",
    "advantage": "What the comparison made of them, over all steps.",
    "replay": "What past rollouts brought, where the algorithm replays some.",
    "hint": "What hinted rollouts brought, where there are some.",
    "scorers": "What finding things out about rollouts before credit cost, where the algorithm measures them.",
    "judge": "What asking a judge came to, where it is a function or a server.",
    "shaping": "What comparing the rollouts of a group added to their rewards, where the algorithm shapes them.",
    "learner": "What the optimizer did.",
    "critic": "What the critic learned, where the algorithm has one.",
    "weights": "Whether engine and learner have the same weights.",
    "loss": "What the loss measured, over the tokens that trained; which of them depends on the loss's parts.",
    "replicas": "What servers did, where the engine is one of servers; `N` is a server's number, from 0. Like seconds, "
    "these differ from run to run.",
    "evaluation": "What trackers get of an evaluation; the journal has its rollouts one by one. If the run file names "
    "task sets, names begin with `evaluation/NAME/`, and of a task category with `evaluation/NAME/CATEGORY/`.",
    "seconds": "Where the time of the update went.",
    "speed": "How fast it went. Like seconds, and unlike everything above, these differ from run to run.",
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
        "Every update writes these into the run's journal, and hands them to the run's trackers. `groupwise report` "
        "draws\nthem; `groupwise inspect` lists them. A metric that could not be measured is absent, never 0. A part "
        f"from another\npackage may log names that begin with `{EXTRA}`; no other name that is not on this page is "
        "logged.\n\n"
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
