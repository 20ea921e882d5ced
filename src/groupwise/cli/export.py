"""`groupwise export`: write a run's model as a folder for transformers and vLLM."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from groupwise.cli.arguments import argument, flag, need_trainer, option
from groupwise.cli.screen import print_json, print_line
from groupwise.system.errors import ConfigError


def export(
    run: Annotated[Path, argument("RUN", "Run folder; with --push also an exported folder.")],
    update: Annotated[int | None, option("N", "Update of the checkpoint; default: the latest.", min=0)] = None,
    best: Annotated[bool, flag("--best", "Export the checkpoint with the best evaluation.")] = False,
    merge: Annotated[bool, flag("--merge", "Merge the adapter into its base model.")] = False,
    out: Annotated[Path | None, option("FOLDER", "New folder; default: RUN-UPDATE beside the run.")] = None,
    push: Annotated[str | None, option("ACCOUNT/NAME", "Upload to this Hugging Face repository.")] = None,
    public: Annotated[bool, flag("--public", "Make the new repository public.")] = False,
    as_json: Annotated[bool, flag("--json", "Print the result as JSON.")] = False,
) -> None:
    """Export the model of a run as a Hugging Face folder. It has a model card."""
    need_trainer()
    from groupwise.training.export import export_run, is_exported, push_folder

    if is_exported(run):
        if not push or update is not None or best or merge or out is not None:
            raise ConfigError(f"{run} is an exported folder; it can only be uploaded: --push ACCOUNT/NAME")
        print_line(f"pushed to {push_folder(run, push, private=not public)}")
        return
    exported = export_run(run, out, update=update, best=best, merge=merge)
    address = push_folder(exported.folder, push, private=not public) if push else None
    if as_json:
        result = {"folder": str(exported.folder), "update": exported.update, "is_adapter": exported.is_adapter}
        print_json(result | {"pushed_to": address})
        return
    what = "the adapter" if exported.is_adapter else "the model"
    print_line(f"{exported.folder}: {what} after update {exported.update}, with its tokenizer and a card")
    if address:
        print_line(f"pushed to {address}")
    elif exported.is_adapter:
        print_line("with --merge, the folder contains the whole model")
