"""Write the tables of facts in docs/environments.md, from the environments and envs/kit/facts.py.

python docs/build_facts.py [--check]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from groupwise.envs.kit.facts import FACTS
from groupwise.parts.part import load_catalogue

PAGE = Path(__file__).parent / "environments.md"
BEGIN = "<!-- Written by docs/build_facts.py from the environments. Do not edit by hand. -->\n"
END = "<!-- end of the facts -->\n"


def table() -> str:
    """Which environment tells which fact, then what each fact is."""
    writes: dict[str, frozenset[str]] = {
        kind: part.writes for kind, part in load_catalogue("env").items() if hasattr(part, "writes")
    }
    kinds = sorted(writes)
    who = "".join(
        f"| `{name}` | {' | '.join('yes' if name in writes[kind] else '' for kind in kinds)} |\n" for name in FACTS
    )
    what = "".join(f"| `{name}` | {fact.takes} | {fact.meaning} | {fact.present} |\n" for name, fact in FACTS.items())
    return (
        f"| fact | {' | '.join(f'[{kind}](#{kind})' for kind in kinds)} |\n|---|{'---|' * len(kinds)}\n{who}\n"
        f"| fact | takes | meaning | stands on |\n|---|---|---|---|\n{what}"
    )


def page(before: str) -> str:
    """The page with the tables as they should be."""
    first, _, rest = before.partition(BEGIN)
    _, _, last = rest.partition(END)
    return f"{first}{BEGIN}\n{table()}\n{END}{last}"


def main() -> None:
    """Write the page, or say that it is stale."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the page is not up to date")
    present = PAGE.read_text(encoding="utf-8")
    if not parser.parse_args().check:
        PAGE.write_text(page(present), encoding="utf-8")
    elif page(present) != present:
        sys.exit(f"{PAGE} is stale; run `python docs/build_facts.py`")


if __name__ == "__main__":
    main()
