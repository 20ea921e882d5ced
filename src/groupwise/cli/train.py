"""`groupwise train`: run a run file, or go on with a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from groupwise.cli.screen import output

if TYPE_CHECKING:
    from groupwise.core.journal import Update
    from groupwise.training.evaluation import Evaluation


def train(
    file: Annotated[Path, typer.Argument(help="A run file (TOML).")],
    out: Annotated[Path, typer.Option(help="Folder of the run.")],
    set_: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a setting.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the last checkpoint of the folder.")] = False,
) -> None:
    """Train a policy: warm start, evaluation, updates, evaluation; everything is kept in the run's folder."""
    import tomli_w

    from groupwise.recipes.run_file import load_run

    config = load_run(file, overrides=set_ or ())
    from groupwise.training.evaluation import evaluate
    from groupwise.training.loop import train as run_loop
    from groupwise.training.run import open_run
    from groupwise.training.warm_start import warm_start

    run = open_run(config, out)
    (out / "config.toml").write_text(tomli_w.dumps(config.config()))
    console = output()
    if not resume:
        if config.warm_start is not None:
            losses = warm_start(run, config.warm_start)
            console.print(f"warm start: loss {losses[0]:.3f} to {losses[-1]:.3f} over {len(losses)} epochs")
        console.print(f"before: {_words(evaluate(run))}")
    run_loop(run, resume=resume, report=lambda update: console.print(_line(update), highlight=False))
    console.print(f"after:  {_words(evaluate(run))}")


def _line(update: Update) -> str:
    shown = ("rollout/success", "rollout/return", "rollout/steps", "loss/total", "learner/grad_norm")
    seconds = sum(value for name, value in update.metrics.items() if name.startswith("seconds/"))
    numbers = "  ".join(
        f"{name.partition('/')[2]} {update.metrics[name]:.3f}" for name in shown if name in update.metrics
    )
    return f"update {update.number:4d}  {numbers}  {seconds:.1f} s"


def _words(found: Evaluation) -> str:
    low, high = found.interval
    return f"success {100 * found.success:.1f} % [{100 * low:.1f}, {100 * high:.1f}] over {found.attempts} attempts"
