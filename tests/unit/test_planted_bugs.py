"""The scripts that plant bugs: which survive with reason, which are planted by hand, and the page about both."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mutation import plant_bugs
from tests.mutation.check_planted_bugs import (
    HERE,
    PAGE,
    Explanation,
    PlantedBug,
    count_by_package,
    count_left,
    fill_table,
    find_differences,
    read_explanations,
    read_left,
    spell_bug,
    tabulate_explanations,
)


@pytest.mark.parametrize(
    ("name", "changes", "text"),
    [
        ("groupwise.credit.filters.xǁDropSolvedǁ__call____mutmut_3", "-a < b\n+a <= b", "DropSolved.__call__: a <= b"),
        ("groupwise.credit.filters.x__scores__mutmut_12", " x\n-a\n-b\n+c\n y", "_scores: c"),
        ("groupwise.credit.filters.x_maxǁx__mutmut_1", "-    count=num,\n-)\n+)", "max.x: without count=num, )"),
    ],
)
def test_a_bug_is_spelled_by_its_function_and_what_was_planted(name: str, changes: str, text: str) -> None:
    assert spell_bug(name, f"--- before\n+++ after\n{changes}") == f"credit.filters.{text}"


BUGS = [
    PlantedBug("groups", "groups.by_task.ByTask.__call__: a", False),
    PlantedBug("groups", "groups.by_task.ByTask.__call__: a", False),
    PlantedBug("groups", "groups.by_task.ByTask.__call__: b", True),
    PlantedBug("losses", "losses.ratios._clamp: c", False),
]


def explain(*texts: str) -> list[Explanation]:
    return [Explanation("they change nothing", texts)]


def test_a_survivor_that_is_not_explained_is_found_and_so_is_an_explanation_of_nothing() -> None:
    a, b, c = (bug.text for bug in BUGS[1:])
    assert find_differences(BUGS, explain(a, a, c)) == ([], [])
    assert find_differences(BUGS, explain(a, c)) == ([a], []), "the same line was planted twice"
    assert find_differences(BUGS, explain(a, a, b)) == ([c], [b])


def test_bugs_are_counted_by_package_and_the_page_says_how_many_are_left() -> None:
    left = count_left(find_differences(BUGS, explain(BUGS[0].text))[0])
    table = count_by_package(BUGS, left)
    assert table.split("\n")[2:] == [
        "| `groups` | 3 | 1 | 1 | 1 |",
        "| `losses` | 1 | 0 | 0 | 1 |",
        "| all | 4 | 1 | 1 | 2 |",
    ]
    assert read_left(f"# Planted bugs\n\n{table}\n") == left == {"groups": 1, "losses": 1}


def test_reasons_are_counted_by_module_and_the_most_frequent_comes_first() -> None:
    rare = Explanation("not read", ("losses.ratios._clamp: c",))
    often = Explanation("the same", ("groups.by_task.f: a", "groups.by_edge.g: a", "groups.by_edge.g: b"))
    assert tabulate_explanations([rare, often]).split("\n")[2:] == [
        "| 3 | the same | `by_edge` 2, `by_task` 1 |",
        "| 1 | not read | `ratios` 1 |",
    ]


def test_a_page_without_the_markers_is_not_written() -> None:
    with pytest.raises(SystemExit, match=r"tests/mutation/README\.md has no line"):
        fill_table("# Planted bugs\n", "counts", "| |")


def test_the_page_tells_the_reasons_of_the_list() -> None:
    page = PAGE.read_text()
    assert fill_table(page, "reasons", tabulate_explanations(read_explanations())) == page, (
        "run `make mutation`, then `.mutation/bin/python tests/mutation/check_planted_bugs.py --write`"
    )


def test_a_bug_is_explained_once() -> None:
    reasons = [(text, explanation.why) for explanation in read_explanations() for text in explanation.bugs]
    by_text = dict(reasons)
    assert [text for text, why in reasons if by_text[text] != why] == []


def functions_of(module: str) -> Iterator[str]:
    """Functions and methods of a module of groupwise: `name`, `Class.name`."""
    path = HERE.joinpath("src", "groupwise", *module.split(".")).with_suffix(".py")
    for node in ast.parse(path.read_text()).body if path.exists() else ():
        if isinstance(node, ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.ClassDef):
            yield from (f"{node.name}.{member.name}" for member in node.body if isinstance(member, ast.FunctionDef))


def test_an_explained_bug_lies_in_a_function_that_is_there() -> None:
    """Where a function was renamed, the list has to follow: `make mutation` says the lines."""
    for explanation in read_explanations():
        for bug in explanation.bugs:
            place = bug.partition(":")[0].split(".")
            # A function is `module.name` or `module.Class.name`; modules may lie in folders.
            assert any(".".join(place[-num:]) in functions_of(".".join(place[:-num])) for num in (1, 2)), bug


def test_a_bug_planted_by_hand_stands_for_a_line_that_is_there_once() -> None:
    """Where a line was rewritten, the list has to follow."""
    bugs = plant_bugs.read_bugs()
    assert len(bugs) >= 20
    for bug in bugs:
        text = (HERE / "src" / "groupwise" / bug.file).read_text(encoding="utf-8")
        assert text.count(bug.line) == 1, bug
        assert bug.instead != bug.line
        ast.parse(text.replace(bug.line, bug.instead))


def test_a_bug_planted_by_hand_names_tests_that_are_there() -> None:
    for bug in plant_bugs.read_bugs():
        for name in bug.noticed_by:
            path, _, test = name.partition("::")
            text = (HERE / path).read_text(encoding="utf-8")
            assert f"def {test.partition('[')[0]}(" in text or not test, name


def test_bugs_are_chosen_by_words_of_their_file_or_description() -> None:
    bugs = plant_bugs.read_bugs()
    assert plant_bugs.choose_bugs(bugs, []) == bugs
    chosen = plant_bugs.choose_bugs(bugs, ["p3o", "R2VPO"])
    assert {bug.file for bug in chosen} >= {"methods/p3o.py", "methods/r2vpo.py"}
    assert len(chosen) < len(bugs)


def test_a_planted_bug_is_taken_out_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "src" / "groupwise" / "sums.py"
    path.parent.mkdir(parents=True)
    path.write_text("total = 1 + 1\n", encoding="utf-8")
    bug = plant_bugs.HandPlantedBug("it subtracts", "sums.py", "1 + 1", "1 - 1", ("tests/test_sums.py",))
    seen = []

    def run_tests(folder: Path, tests: object) -> int:
        seen.append(path.read_text(encoding="utf-8"))
        return len(seen) % 2

    monkeypatch.setattr(plant_bugs, "run_tests", run_tests)
    assert plant_bugs.plant(tmp_path, bug)
    assert not plant_bugs.plant(tmp_path, bug)
    assert seen == ["total = 1 - 1\n"] * 2
    assert path.read_text(encoding="utf-8") == "total = 1 + 1\n"
    monkeypatch.setattr(plant_bugs, "run_tests", lambda folder, tests: 4)
    with pytest.raises(SystemExit, match=r"sums.py: the tests could not run \(pytest ended with 4\)"):
        plant_bugs.plant(tmp_path, bug)
