"""The script that measures the tree, on a tree of a few files whose figures are counted by hand."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from docs import measure_tree
from docs.measure_tree import SourceTree, is_participle

FILES = {
    "__init__.py": "from groupwise.core.record import Record\n",
    "cli/__init__.py": '"""Commands."""\n',
    # Imports inside a function count; `seed_all` and `read_all` are verbs, `shown` is a property.
    "cli/main.py": """
        def seed_all():
            from groupwise.parts import Median
            return Median


        class Screen:
            @property
            def shown(self):
                return "task"

            def _scored(self):
                def told_twice():
                    return f"reward {self}"
                return told_twice
        """,
    "parts/__init__.py": "from groupwise.parts.median import Median\n\nCATALOGUE = {'median': Median}\n",
    # Imported through its package only, by cli/main.py; it imports mean.py, which imports it back.
    "parts/median.py": """
        from groupwise.core.record import Record
        from groupwise.parts.mean import mean

        Median = (Record, mean, {"reward": "rewarding"})
        """,
    "parts/mean.py": """
        import groupwise.parts.median


        def mean():
            return "reward"
        """,
    "core/__init__.py": "",
    "core/record.py": """
        from typing import TYPE_CHECKING

        if TYPE_CHECKING:
            from groupwise.cli.main import Screen

        Record = "index"
        """,
    "core/step_fields.py": """
        STEP_FIELDS = (StepField(name="task", column=Column(name="index")), StepField(name="reward"))
        """,
}


def write_tree(root: Path) -> None:
    for name, text in FILES.items():
        path = root / "src" / "groupwise" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        indent = "        "
        path.write_text("\n".join(line.removeprefix(indent) for line in text.strip().splitlines()) + "\n" * bool(text))


@pytest.fixture
def tree(tmp_path: Path) -> SourceTree:
    write_tree(tmp_path)
    return SourceTree(tmp_path)


def test_files_and_lines_are_counted_by_package(tree: SourceTree) -> None:
    assert tree.measure().packages == {"(top)": (1, 1), "cli": (2, 15), "core": (3, 7), "parts": (3, 12)}


def test_who_imports_a_name_from_a_package_imports_the_file_that_it_comes_from(tree: SourceTree) -> None:
    # median.py: cli/main.py and mean.py. mean.py: median.py. record.py: median.py, since the package's own
    # `__init__.py` and what only a type checker reads do not count.
    assert tree.single_importers() == {
        "groupwise.core.record": "groupwise.parts.median",
        "groupwise.parts.mean": "groupwise.parts.median",
    }


def test_a_circle_is_one_link_of_the_deepest_chain(tree: SourceTree) -> None:
    # main -> parts/__init__ -> mean and median, which import each other -> record
    assert tree.deepest_chain() == [
        "groupwise.cli.main",
        "groupwise.parts",
        "groupwise.parts.mean",
        "groupwise.core.record",
    ]


def test_literals_that_are_a_field_of_the_table_are_places_that_spell_it(tree: SourceTree) -> None:
    # Not "index", which names a column of the table and no field, nor the text that only begins with a field's name.
    assert tree.field_places() == [
        ("reward", "parts/mean.py:5"),
        ("reward", "parts/median.py:4"),
        ("task", "cli/main.py:9"),
    ]


def test_functions_and_methods_are_named_by_participles_and_properties_are_not(tree: SourceTree) -> None:
    assert tree.participles() == [("_scored", "cli/main.py:11"), ("told_twice", "cli/main.py:12")]


@pytest.mark.parametrize("word", ["rescored", "warming", "held", "written", "left", "missing"])
def test_these_are_participles(word: str) -> None:
    assert is_participle(word)


@pytest.mark.parametrize("word", ["score", "embed", "need", "read", "set", "run", "split", "string", "during", "is"])
def test_these_are_none(word: str) -> None:
    assert not is_participle(word)


def test_the_table_has_a_column_for_each_tree(tree: SourceTree) -> None:
    figures = tree.measure()
    smaller = measure_tree.Figures({"core": (1, 1000)}, 8, 7, 6, 5, 4, 3)
    assert measure_tree.format_table({"before": smaller, "after": figures}) == (
        "|  | before | after |\n"
        "| --- | ---: | ---: |\n"
        "| `(top)`: files, lines |  | 1, 1 |\n"
        "| `cli`: files, lines |  | 2, 15 |\n"
        "| `core`: files, lines | 1, 1,000 | 3, 7 |\n"
        "| `parts`: files, lines |  | 3, 12 |\n"
        "| all: files, lines | 1, 1,000 | 9, 35 |\n"
        "| files that only speak for their folder, `__init__.py` | 8 | 4 |\n"
        "| files with a single importer | 7 | 2 |\n"
        "| of these below 50 lines | 6 | 2 |\n"
        "| deepest import chain, files | 5 | 4 |\n"
        "| places that spell a step's field | 4 | 3 |\n"
        "| functions named by participles | 3 | 2 |\n"
    )


@pytest.mark.parametrize(
    ("what", "lines"),
    [
        ("participles", ["cli/main.py:11 _scored", "cli/main.py:12 told_twice"]),
        ("fields", ["reward parts/mean.py:5", "reward parts/median.py:4", "task cli/main.py:9"]),
        (
            "single-importers",
            [
                "   5 groupwise.parts.mean <- groupwise.parts.median",
                "   6 groupwise.core.record <- groupwise.parts.median",
            ],
        ),
    ],
)
def test_what_was_counted_can_be_listed(
    what: str, lines: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_tree(tmp_path)
    measure_tree.main(["--list", what, str(tmp_path)])
    assert capsys.readouterr().out.splitlines() == lines


def test_a_page_keeps_its_words_and_both_columns(tree: SourceTree) -> None:
    figures = tree.measure()
    page = f"# Rooms\n\n{measure_tree.BEGIN}\nstale\n{measure_tree.END}\n\nAnd so on.\n"
    filled = measure_tree.fill_page(page, figures, figures)
    assert filled.startswith("# Rooms\n\n<!-- Written")
    assert filled.endswith("| functions named by participles | 2 | 2 |\n\n<!-- end of the figures -->\n\nAnd so on.\n")
    assert "stale" not in filled
    assert measure_tree.fill_page(filled, figures, figures) == filled
    assert measure_tree.read_figures(filled, measure_tree.BEFORE) == figures
    assert measure_tree.read_figures(filled, measure_tree.AFTER) == figures


def test_writing_takes_the_column_before_from_the_page_unless_a_tree_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tree(tmp_path / "before")
    write_tree(tmp_path / "after")
    (tmp_path / "after" / "src" / "groupwise" / "cli" / "extra.py").write_text("def drawn(): ...\n")
    monkeypatch.setattr(measure_tree, "HERE", tmp_path / "after")
    page = tmp_path / "page.md"
    page.write_text(f"{measure_tree.BEGIN}\n{measure_tree.END}\n")
    with pytest.raises(SystemExit, match="holds no figures yet"):
        measure_tree.main(["--write", str(page)])
    measure_tree.main(["--write", str(page), str(tmp_path / "before")])
    assert "| functions named by participles | 2 | 3 |\n" in page.read_text()
    (tmp_path / "after" / "src" / "groupwise" / "cli" / "extra.py").unlink()
    measure_tree.main(["--write", str(page)])
    assert "| functions named by participles | 2 | 2 |\n" in page.read_text()


def test_a_revision_is_measured_as_its_folder_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tree(tmp_path)
    figures = SourceTree(tmp_path).measure()
    for command in (
        ("init", "--quiet"),
        ("add", "src"),
        ("-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "--message", "first"),
    ):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    monkeypatch.setattr(measure_tree, "HERE", tmp_path)
    (tmp_path / "src" / "groupwise" / "core" / "record.py").unlink()
    assert measure_tree.measure("HEAD") == figures


def test_a_place_that_holds_no_tree_is_named(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="nowhere is neither a folder with src/groupwise nor a git revision"):
        measure_tree.measure("nowhere")
    with pytest.raises(SystemExit, match="holds no src/groupwise"):
        SourceTree(tmp_path)
