"""Write the table of keys in docs/reference/rollouts.md, from the table in data/step_fields.py.

python docs/build_step_fields.py [--check]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from groupwise.data.field_kinds import StepField
from groupwise.data.step_fields import STEP_FIELDS

PAGE = Path(__file__).parent / "reference" / "rollouts.md"
BEGIN = "<!-- Written by docs/build_step_fields.py from data/step_fields.py. Do not edit by hand. -->\n"
END = "<!-- end of the table -->\n"


def table() -> str:
    """The table of the keys, then that of the columns that no row holds."""
    keys = "".join(_row(field) for field in STEP_FIELDS if field.in_rows)
    columns = "".join(_row(field) for field in STEP_FIELDS if not field.in_rows)
    head = "takes | set by | column | meaning |\n|---|---|---|---|---|\n"
    return (
        f"| key | {head}{keys}\nThe step table may have these columns besides, which no row holds:\n\n"
        f"| column | {head}{columns}"
    )


def page(before: str) -> str:
    """The page with a current table."""
    first, _, rest = before.partition(BEGIN)
    _, _, last = rest.partition(END)
    return f"{first}{BEGIN}\n{table()}\n{END}{last}"


def _row(field: StepField) -> str:
    mark = " **required**" if field.required else " ¹" if field.uniform else ""
    takes = field.kind.takes
    if takes.startswith("one of "):
        takes = ", ".join(f"`{name}`" for name in takes.removeprefix("one of ").split(", "))
    column = "yes" if field.column else "no"
    return f"| `{field.name}`{mark} | {takes} | {field.owner} | {column} | {field.meaning} |\n"


def main() -> None:
    """Write the page; with --check, report whether it is stale."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the page is not up to date")
    present = PAGE.read_text(encoding="utf-8")
    if not parser.parse_args().check:
        PAGE.write_text(page(present), encoding="utf-8")
    elif page(present) != present:
        sys.exit(f"{PAGE} is stale; run `python docs/build_step_fields.py`")


if __name__ == "__main__":
    main()
