"""`groupwise check engine`: put the engine of a run file to the rules that the loop relies on."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from groupwise.cli.rule_report import print_rules
from groupwise.cli.run_folders import need_trainer
from groupwise.cli.screen import print_json
from groupwise.core.parts.part import name_of


def engine(
    file: Annotated[Path, typer.Argument(help="A run file (TOML); its sections model and engine say what is opened.")],
    set_: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a setting.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Check the engine of a run file against the rules the loop relies on; exit with status 1 if one is broken."""
    need_trainer()
    from groupwise.config.run_file import load_run  # a run's whole schema; not every command needs it

    config = load_run(file, overrides=set_ or ())
    from groupwise.training.engine.check import check_run_engine

    results = check_run_engine(config)
    if as_json:
        print_json({"engine": config.config()["engine"], "rules": [asdict(result) for result in results]})
    else:
        print_rules(name_of(config.engine), results)
    if any(result.status == "broken" for result in results):
        raise typer.Exit(1)
