"""`groupwise preview`: a run's prompts, what its action rule reads, and what an update takes; before it is run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from groupwise.cli.arguments.run_folders import need_trainer
from groupwise.cli.arguments.trust import Trust
from groupwise.cli.preview.views import preview_as_json, print_preview
from groupwise.cli.terminal.screen import output, print_finite_json
from groupwise.core.parts.part import check_may_open


def preview(
    file: Annotated[Path, typer.Argument(help="A run file (TOML), or the folder of a run.")],
    tasks: Annotated[int, typer.Option(min=1, help="How many tasks to show.")] = 2,
    steps: Annotated[int, typer.Option(min=1, help="How many steps of each.")] = 3,
    task: Annotated[
        list[str] | None,
        typer.Option(metavar="ID", help="Show this task; the beginning of its id will do; may repeat."),
    ] = None,
    response: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="Say this at the first step, a second one at the second; may repeat."),
    ] = None,
    tokens: Annotated[bool, typer.Option("--tokens", help="List each token with its id and its origin too.")] = False,
    set_: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a setting.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print all of it as JSON, with every id.")] = False,
    trust: Trust = False,
) -> None:
    """See what a model would be shown, and what an update takes, before anything is paid: no weights are loaded.

    Attempts are played by the environment's expert, with possible actions, or with the responses that you give.
    """
    need_trainer()
    from groupwise.config.run_file import load_run  # a run's whole schema; not every command needs it

    config = load_run(file, overrides=set_ or ())
    check_may_open(config.env)
    from groupwise.training.preview.preview_run import preview_run

    shown = preview_run(config, num_tasks=tasks, num_steps=steps, task_ids=task or (), responses=response or ())
    if as_json:
        print_finite_json(preview_as_json(shown))
    else:
        print_preview(output(), shown, with_tokens=tokens)
