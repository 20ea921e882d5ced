"""Compare the planted bugs that no test noticed with those that tests/mutation/planted_bugs.toml explains.

python tests/mutation/check_planted_bugs.py            count them; fail if more are left than README.md says
python tests/mutation/check_planted_bugs.py --write    write the two tables of README.md too

It reads what `mutmut run` left in the folder `mutants`, so it runs where mutmut is installed (`make mutation`). A
planted bug is known by its function and the lines that it put there, not by a number, so that an edit elsewhere in a
function moves nothing:

    credit.filters.SmallCredit.__call__: return np.abs(credit.values) > self.min_size

Where the bug is a line that was taken away, that line stands there after the word "without".
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parents[2]
MUTANTS = HERE / "mutants"
PAGE = Path(__file__).parent / "README.md"
EXPLAINED = Path(__file__).parent / "planted_bugs.toml"

NOTICED = frozenset({1, 3, 24, -24, 36, 152, 255})
"""How the tests of a planted bug ended where they noticed it: a test failed, or they took far longer than without."""

BEGIN = "<!-- {}: written by tests/mutation/check_planted_bugs.py. Do not edit by hand. -->"
END = "<!-- end -->"


@dataclass(frozen=True)
class PlantedBug:
    """A bug that was planted, and whether some test noticed it."""

    package: str
    """The package that it was planted in: groups, advantages, ..."""
    text: str
    """Its function and what was planted there, as the list of explained ones spells it."""
    is_noticed: bool
    """Whether a test failed, or took far longer."""


@dataclass(frozen=True)
class Explanation:
    """Why some planted bugs cannot be noticed, or need not be."""

    why: str
    """The reason, a sentence."""
    bugs: tuple[str, ...]
    """The planted bugs that it holds for."""


def read_explanations(path: Path = EXPLAINED) -> list[Explanation]:
    """The planted bugs that survive with reason."""
    return [Explanation(kind["why"], tuple(kind["bugs"])) for kind in tomllib.loads(path.read_text())["kind"]]


def read_planted_bugs(folder: Path = MUTANTS) -> Iterator[PlantedBug]:
    """Every planted bug of the last run."""
    from mutmut.mutation.diff_apply import get_diff_for_mutant  # type: ignore[import-not-found]

    for meta in sorted((folder / "src").rglob("*.meta")):
        source = meta.relative_to(folder).with_suffix("")
        for name, exit_code in json.loads(meta.read_text())["exit_code_by_key"].items():
            if exit_code is None:
                raise SystemExit(f"{name} was planted and not tried yet; let `mutmut run` come to its end")
            is_noticed = exit_code in NOTICED
            diff = "" if is_noticed else get_diff_for_mutant(name, path=source)
            yield PlantedBug(source.parts[2], spell_bug(name, diff), is_noticed)


def spell_bug(name: str, diff: str) -> str:
    """A planted bug by its function and what was planted, from mutmut's name and its unified diff.

    >>> spell_bug("groupwise.credit.filters.xǁDropSolvedǁ__call____mutmut_3", "--- a\\n+++ b\\n-x = 1\\n+x = 2")
    'credit.filters.DropSolved.__call__: x = 2'
    """
    function = re.sub(r"__mutmut_\d+$", "", name.removeprefix("groupwise."))
    module, _, function = function.rpartition(".")
    function = function.removeprefix("xǁ").removeprefix("x_").replace("ǁ", ".")
    changes = diff.split("\n")[2:]
    removed = " ".join(line[1:].strip() for line in changes if line.startswith("-"))
    planted = " ".join(line[1:].strip() for line in changes if line.startswith("+"))
    return f"{module}.{function}: " + (planted if planted.strip(" ()[]{},") else f"without {removed}")


def find_differences(bugs: Iterable[PlantedBug], explanations: Iterable[Explanation]) -> tuple[list[str], list[str]]:
    """The bugs that survived without an explanation, and those that are explained though none such survived."""
    survived = Counter(bug.text for bug in bugs if not bug.is_noticed)
    explained = Counter(text for explanation in explanations for text in explanation.bugs)
    return sorted((survived - explained).elements()), sorted((explained - survived).elements())


def count_left(unexplained: Iterable[str]) -> Counter[str]:
    """How many bugs of each package are neither noticed nor explained."""
    return Counter(text.partition(".")[0] for text in unexplained)


def count_by_package(bugs: Iterable[PlantedBug], left: Counter[str]) -> str:
    """The table of how many bugs of each package were planted, noticed, explained and left."""
    planted, noticed = Counter[str](), Counter[str]()
    for bug in bugs:
        planted[bug.package] += 1
        noticed[bug.package] += bug.is_noticed
    rows = [(f"`{package}`", planted[package], noticed[package], left[package]) for package in planted]
    rows.append(("all", planted.total(), noticed.total(), left.total()))
    lines = [f"| {name} | {num:,} | {seen:,} | {num - seen - rest:,} | {rest:,} |" for name, num, seen, rest in rows]
    return "\n".join(["| package | planted | noticed | explained | left |", "|---|---|---|---|---|", *lines])


def read_left(page: str) -> Counter[str]:
    """How many bugs of each package the page's table leaves."""
    rows = re.findall(r"^\| `(\w+)` \| [\d,]+ \| [\d,]+ \| [\d,]+ \| ([\d,]+) \|$", page, re.MULTILINE)
    return Counter({package: int(left.replace(",", "")) for package, left in rows})


def tabulate_explanations(explanations: Iterable[Explanation]) -> str:
    """The table of why planted bugs survive, the most frequent reason first."""
    rows = []
    for explanation in sorted(explanations, key=lambda kind: -len(kind.bugs)):
        modules = Counter(bug.partition(":")[0].split(".")[1] for bug in explanation.bugs)
        where = ", ".join(f"`{module}` {num}" for module, num in modules.most_common())
        rows.append(f"| {len(explanation.bugs)} | {explanation.why} | {where} |")
    return "\n".join(["| bugs | why no test can notice them, or none need | where |", "|---|---|---|", *rows])


def fill_table(page: str, name: str, table: str) -> str:
    """The page with another table between the markers of that name."""
    begin = BEGIN.format(name)
    before, marker, rest = page.partition(begin)
    if not marker:
        raise SystemExit(f"tests/mutation/README.md has no line {begin!r}; put it back, with {END!r} below")
    return f"{before}{begin}\n\n{table}\n\n{END}{rest.partition(END)[2]}"


def main(arguments: list[str] | None = None) -> int:
    """Report; 1 if more bugs are left in a package than the page says, or if one is explained that did not survive."""
    parser = argparse.ArgumentParser(description="Compare surviving planted bugs with the explained ones.")
    parser.add_argument("--write", action="store_true", help="write the tables of tests/mutation/README.md")
    write = parser.parse_args(arguments).write
    bugs, explanations = list(read_planted_bugs()), read_explanations()
    if not bugs:
        raise SystemExit("the folder mutants holds no planted bugs; run `make mutation`")
    unexplained, no_longer = find_differences(bugs, explanations)
    left, page = count_left(unexplained), PAGE.read_text()
    counts = count_by_package(bugs, left)
    print(counts)
    if write:
        page = fill_table(page, "counts", counts)
        PAGE.write_text(fill_table(page, "reasons", tabulate_explanations(explanations)))
    if unexplained:
        print("\nNo test notices these: write one that does, or explain them in tests/mutation/planted_bugs.toml.")
        print("\n".join(f"  {json.dumps(text, ensure_ascii=False)}," for text in unexplained))
    more = sorted((left - read_left(page)).items())
    for package, number in more:
        print(f"\n{package}: {number} more are left than tests/mutation/README.md says.")
    if no_longer:
        print("\nThese are explained in planted_bugs.toml and were not planted, or were noticed: take them out.")
        print("\n".join(f"  {json.dumps(text, ensure_ascii=False)}," for text in no_longer))
    return 1 if more or no_longer else 0


if __name__ == "__main__":
    sys.exit(main())
