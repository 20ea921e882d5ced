"""`groupwise schema`: the JSON schema of run files, for editors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from groupwise.cli.screen import print_line, write_text
from groupwise.system.errors import ConfigError
from groupwise.system.json_text import to_json


def schema(
    out: Annotated[Path | None, typer.Option(help="File to write; printed otherwise.")] = None,
) -> None:
    """Write the JSON schema of run files, so that editors complete them and mark what is wrong."""
    from groupwise.training.config.schema import (
        make_run_schema,  # every part of every slot; `--help` waits for none of them
    )

    text = to_json(make_run_schema(), ensure_ascii=False)
    if out is None:
        write_text(text)
        return
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{out} cannot be written ({error.strerror}); choose another place with --out") from None
    print_line(
        f"{out} is written. An editor that knows Taplo (Even Better TOML) uses it for run files that begin with\n"
        f"#:schema {out}"
    )
