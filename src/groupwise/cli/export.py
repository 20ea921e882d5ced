"""`groupwise export`: a run's policy as a folder that transformers and vLLM load."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from groupwise.cli.arguments import need_trainer
from groupwise.cli.screen import print_json, print_line
from groupwise.system.errors import ConfigError


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run; with --push also one exported before.")],
    update: Annotated[int | None, typer.Option(min=0, help="After which update; the latest otherwise.")] = None,
    best: Annotated[
        bool, typer.Option("--best", help="The checkpoint with the highest success at an evaluation.")
    ] = False,
    merge: Annotated[bool, typer.Option("--merge", help="Merge an adapter into the model it sits on.")] = False,
    out: Annotated[Path | None, typer.Option(help="New folder; RUN-UPDATE beside the run otherwise.")] = None,
    push: Annotated[str | None, typer.Option(metavar="REPO", help="Send it to the hub, as account/name.")] = None,
    public: Annotated[bool, typer.Option("--public", help="Let everybody see a repository made by --push.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was written as JSON.")] = False,
) -> None:
    """Write a run's policy as a Hugging Face folder, with a card: its evaluation, its panel's hash, its recipe."""
    need_trainer()
    from groupwise.training.export import export_run, is_exported, push_folder

    if is_exported(run):
        if not push or update is not None or best or merge or out is not None:
            raise ConfigError(f"{run} was exported already; all that is left to do is to send it: --push ACCOUNT/NAME")
        print_line(f"pushed to {push_folder(run, push, private=not public)}")
        return
    exported = export_run(run, out, update=update, best=best, merge=merge)
    address = push_folder(exported.folder, push, private=not public) if push else None
    if as_json:
        facts = {"folder": str(exported.folder), "update": exported.update, "is_adapter": exported.is_adapter}
        print_json(facts | {"pushed_to": address})
        return
    what = "the adapter" if exported.is_adapter else "the model"
    print_line(f"{exported.folder}: {what} after update {exported.update}, with its tokenizer and a card")
    if address:
        print_line(f"pushed to {address}")
    elif exported.is_adapter:
        print_line("--merge writes a whole model, which needs no other folder")
