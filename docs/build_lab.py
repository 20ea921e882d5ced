"""Write the tables and pictures of which_credit_when.md from benchmarks/results: no number is typed.

python docs/build_lab.py [--check]

A table is below its name, `<!-- table: NAME -->`; the text around it is written by hand.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

from lab_plot import draw_dial
from table_text import percent, result, table

DOCS = Path(__file__).parent
PAGE = DOCS.parent / "benchmarks" / "pages" / "which_credit_when.md"
TABLE = re.compile(r"(<!-- table: (\w+) -->\n)(?:\|.*\n)*")
NUMBERS = ("error", "bias", "misdirection", "noise", "sign", "rank")
WORLDS = ("lake", "corridor")
PICTURES = {"lab_group_size": "group size", "lab_skill": "skill", "lab_horizon": "horizon"}
"""The dial of each picture."""
ASKING = ("after_webstar", "pav")
"""Methods that ask an expert, or play on from every step: not at equal rollouts."""
TAKEN_APART = ("grpo", "gigpo", "hgpo")
"""Methods of whose settings some are changed one by one."""
DRAWN = ("grpo", "rloo", "gigpo", "hgpo", "salt", "gagpo", "hgae", "shrunk_hgae")
"""Methods that pictures show; all are in the JSON."""


def whole_dial() -> str:
    """Each method over all circumstances: means, and in how many of them nobody has a lower error."""
    names, studies = result("lab")["finer"], _list_distinct()
    lowest = [min(_errors(study, names)) for study in studies]
    of_those = [min(_errors(study, [name for name in names if name not in ASKING])) for study in studies]
    rows = []
    for name in names:
        lines = [study["methods"][name] for study in studies]
        errors = [line["error"]["value"] for line in lines]
        wins = [sum(error <= end for error, end in zip(errors, ends, strict=True)) for ends in (lowest, of_those)]
        others = [f"{median(line[what]['value'] for line in lines):.2f}" for what in ("misdirection", "sign")]
        alone = "asks" if name in ASKING else f"{wins[1]}"
        row = [name, f"{fmean(errors):.3f}", f"{min(errors):.2f} to {max(errors):.2f}", f"{wins[0]}", alone, *others]
        rows.append((fmean(errors), row))
    head = ("method", "mean error", "from, to", "lowest in", "of those that ask nobody")
    return table((*head, "median misdirection", "median sign"), [row for _, row in sorted(rows)])


def _list_distinct() -> list[dict[str, Any]]:
    """Every circumstance of the dials once: dials meet in the world as it is, and a key may tell what a dial hides."""
    studies = {
        json.dumps([study["methods"][name] for name in result("lab")["finer"]]): study
        for study in result("lab")["sweeps"]
        if study["dial"] != "parts"
    }
    return list(studies.values())


def lake() -> str:
    """Every method with full observations."""
    return _list_methods(result("lab")["tables"][0])


def corridor_by_text() -> str:
    """Every method where the text hides the lamps and the room after a mistake."""
    return _list_methods(result("lab")["tables"][1])


def corridor_by_situation() -> str:
    """The same where the key tells all."""
    return _list_methods(result("lab")["tables"][2])


def home() -> str:
    """Methods in a text home, under a language model's policy."""
    [study] = [study for study in result("lab_played")["studies"] if study["world"] == "household"]
    return _list_methods(study)


def same() -> str:
    """Methods with the same advantages as another method."""
    twins: dict[str, list[str]] = {}
    for name, line in result("lab")["tables"][0]["methods"].items():
        if "same_as" in line:
            twins.setdefault(line["same_as"], []).append(name)
    return table(("credit of", "is also that of"), [[name, ", ".join(others)] for name, others in twins.items()])


def not_measured() -> str:
    """Methods that a tabular environment cannot run, and why."""
    lines = result("lab")["tables"][0]["methods"]
    rows = [[name, line["not_measured"]] for name, line in lines.items() if "not_measured" in line]
    return table(("method", "why not"), [[name, words.replace("|", "/")] for name, words in rows])


def bits() -> str:
    """Error by how many lamps are hidden, where every room is told."""
    return _compare_settings("hidden bits", "corridor")


def memory() -> str:
    """Error by how many past steps the policy sees."""
    return _compare_settings("memory of the policy", "corridor")


def discount() -> str:
    """Error against a discounted truth, in both worlds."""
    dial = "discount of the truth"
    studies = [{**study, "setting": f"{world}, {study['setting']}"} for world in WORLDS for study in _find(dial, world)]
    return _compare(dial, studies)


def bits_and_room() -> str:
    """Error by how many lamps are hidden, with the room after a mistake."""
    return _compare_settings("hidden bits, and the room after a mistake", "corridor")


def group_size_lake() -> str:
    """Error by group size in the lake."""
    return _compare_settings("group size", "lake")


def group_size_corridor() -> str:
    """Error by group size in the corridor."""
    return _compare_settings("group size", "corridor")


def skill_lake() -> str:
    """Error by the skill of the policy in the lake."""
    return _compare_settings("skill", "lake")


def skill_corridor() -> str:
    """Error by the skill of the policy in the corridor."""
    return _compare_settings("skill", "corridor")


def horizon_lake() -> str:
    """Error by the number of steps in the lake."""
    return _compare_settings("horizon", "lake")


def horizon_corridor() -> str:
    """Error by the number of steps in the corridor."""
    return _compare_settings("horizon", "corridor")


def parts_lake() -> str:
    """What single settings of GiGPO and HGPO do where everything is seen."""
    return _list_parts("lake")


def parts_corridor() -> str:
    """What single settings of GiGPO and HGPO do where the text hides much."""
    return _list_parts("corridor")


TABLES = {
    made.__name__: made
    for made in (
        *(whole_dial, lake, corridor_by_text, corridor_by_situation, same, not_measured),
        *(home, bits, bits_and_room, memory, discount),
        *(group_size_lake, group_size_corridor, skill_lake, skill_corridor, horizon_lake, horizon_corridor),
        *(parts_lake, parts_corridor),
    )
}
"""Each table by the name that the page gives it."""


def _list_parts(world: str) -> str:
    """GiGPO and HGPO with single settings changed, beside GRPO."""
    [study] = _find("parts", world)
    lines = {name: line for name, line in study["methods"].items() if name.partition(",")[0] in TAKEN_APART}
    return _list_methods({"methods": lines}, with_level=False)


def _list_methods(study: Mapping[str, Any], *, with_level: bool = True) -> str:
    """One row per method, the most accurate first."""
    lines = [(name, line) for name, line in study["methods"].items() if "error" in line]
    rows = [
        [name, *([line["level"]] if with_level else []), *(_show(line[what]) for what in NUMBERS)]
        for name, line in sorted(lines, key=lambda item: item[1]["error"]["value"])
    ]
    return table(("method", *(["credit by"] if with_level else []), *NUMBERS), rows)


def _compare_settings(dial: str, world: str) -> str:
    """Methods over a dial in one world."""
    return _compare(dial, _find(dial, world))


def _compare(dial: str, studies: Sequence[Mapping[str, Any]]) -> str:
    """One row per method, one column per value; the smallest error of each column is bold."""
    names = list(dict.fromkeys(name for study in studies for name in study["methods"]))
    best = [min(_errors(study)) for study in studies]
    rows = [
        [
            name,
            *(_show_error(study["methods"].get(name), minimum) for study, minimum in zip(studies, best, strict=True)),
        ]
        for name in names
    ]
    solved = ["*solved*", *(f"{percent(study['recording']['success'], 0)} %" for study in studies)]
    return table((dial, *(study["setting"] for study in studies)), [solved, *rows])


def _find(dial: str, world: str) -> list[dict[str, Any]]:
    """The studies of a dial in a world."""
    return [study for study in result("lab")["sweeps"] if (study["dial"], study["world"]) == (dial, world)]


def _errors(study: Mapping[str, Any], names: Iterable[str] | None = None) -> Iterable[float]:
    """Errors of some methods, or of all."""
    lines = (study["methods"].get(name, {}) for name in (study["methods"] if names is None else names))
    return (line["error"]["value"] for line in lines if "error" in line)


def _show_error(line: Mapping[str, Any] | None, minimum: float) -> str:
    if line is None or "error" not in line:
        return "-" if line is None or "same_as" not in line else f"as {line['same_as']}"
    number = f"{line['error']['value']:.2f}"
    return f"**{number}**" if line["error"]["low"] <= minimum else number


def _show(measured: Mapping[str, float | None]) -> str:
    value, low, high = (measured[end] for end in ("value", "low", "high"))
    if value is None:
        return "-"
    return f"{value:.2f}" if low is None or high is None else f"{value:.2f} ± {(high - low) / 2:.2f}"


def page(before: str) -> str:
    """The page with current tables."""
    return TABLE.sub(lambda match: match[1] + TABLES[match[2]](), before)


def pictures() -> dict[str, str]:
    """The pictures as SVG, by file name."""
    return {
        f"{name}.svg": draw_dial({world: _find(dial, world) for world in WORLDS}, dial=dial, methods=DRAWN)
        for name, dial in PICTURES.items()
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the tables and pictures; with --check, report what is stale."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the page is not up to date")
    is_check = parser.parse_args(arguments).check
    texts = {PAGE: page(PAGE.read_text(encoding="utf-8"))}
    texts |= {DOCS / "images" / name: picture for name, picture in pictures().items()}
    for path, text in texts.items():
        if not is_check:
            path.write_text(text, encoding="utf-8")
        elif not path.is_file() or path.read_text(encoding="utf-8") != text:
            sys.exit(f"{path} is stale; run `python docs/build_lab.py`")


if __name__ == "__main__":
    main()
