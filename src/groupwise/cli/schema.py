"""`groupwise schema`: write the JSON schema of run files, for editors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from groupwise.cli.arguments import option
from groupwise.cli.screen import print_line, write_text
from groupwise.system.errors import ConfigError
from groupwise.system.json_text import to_json


def schema(out: Annotated[Path | None, option("FILE", "File to write; default: print it.")] = None) -> None:
    """Write the JSON schema of run files. With it, editors complete settings and mark errors."""
    from groupwise.training.config.schema import make_run_schema  # imports every part; too slow for `--help`

    text = to_json(make_run_schema(), ensure_ascii=False)
    if out is None:
        write_text(text)
        return
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{out} cannot be written ({error.strerror}); choose another place with --out") from None
    print_line(
        f"{out} is written. Editors with Taplo (Even Better TOML) use it if a run file begins with\n#:schema {out}"
    )
