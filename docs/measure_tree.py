"""Measure how the source tree is cut and named, and write the figures into a decision record.

python docs/measure_tree.py [BEFORE] [AFTER]           a table of one tree (default: this one) or of two
python docs/measure_tree.py --list WHAT [TREE]         what was counted: participles, single-importers, chain, fields
python docs/measure_tree.py --write PAGE [BEFORE]      the table into a page, between its markers

A tree is a folder that holds `src/groupwise`, or a git revision. What is counted:

- *Files and lines by package*: every `.py` file; a package is a folder directly below `groupwise`.
- *Single importer*: files that exactly one other file imports. An `__init__.py` that passes a name on is no importer;
  whoever imports the name from the package imports the file that it comes from. Files that nobody imports (commands,
  parts that a run file names) are not counted, nor is an `__init__.py`.
- *Deepest import chain*: the largest number of files, each of which imports the next one. Imports inside functions
  count, those under TYPE_CHECKING do not; an `__init__.py` is a file like any other where something is imported from
  it; files that import one another in a circle count as one. So counted, the tree of 314 files (revision 93b8b83) has
  the 19 that were known of it.
- *Places that spell a step's field*: string literals that are, as a whole, the name of a field in the table of
  `StepField(name=...)`, outside its file. A word like "task" is other things' name too; both columns count it alike.
- *Functions named by participles*: functions and methods, private and nested ones too, but no properties, whose first
  word is a past or present participle (see `is_participle`).
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import re
import subprocess
import tarfile
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

HERE = Path(__file__).parents[1]
PACKAGE = "groupwise"
SMALL_FILE = 50
TOP = "(top)"
"""Where files directly below `groupwise` are counted."""

BEGIN = "<!-- Written by docs/measure_tree.py. Do not edit by hand. -->"
BEFORE = "<!-- before: "
AFTER = "<!-- after: "
END = "<!-- end of the figures -->"

NO_PARTICIPLES = re.compile(
    "embed|feed|need|seed|exceed|proceed|succeed|speed|shed|bed|red|bring|ring|sing|string|spring|thing|king|wing|"
    "nothing|something|anything|everything|during|setting"
)
"""Verbs and nouns that only end like a participle."""

IRREGULAR_PARTICIPLES = re.compile(
    "told|found|made|held|kept|said|shown|drawn|taken|given|known|gone|left|seen|sent|built|chosen|written|heard|lost|"
    "spoken|thrown|worn|grown|begun|paid|laid|met|brought|caught|taught|bought|sought|dealt|meant|spent|lent|bent|fed|"
    "led|sold|stood|understood|won|hung|stuck|struck|hidden|driven|broken|frozen|stolen|forgotten|beaten|fallen|torn|"
    "done|been|had|born|shaken|mistaken"
)
"""Those that are not also the verb itself, as `read`, `run`, `set`, `put`, `cut` and `split` are."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def is_participle(word: str) -> bool:
    """Whether a word is a past or present participle: `scored`, `warming`, `held`."""
    if NO_PARTICIPLES.fullmatch(word):
        return False
    return word.endswith(("ed", "ing")) or IRREGULAR_PARTICIPLES.fullmatch(word) is not None


@dataclass(frozen=True)
class SourceFile:
    """A file of the package, with what is imported into it."""

    module: str
    path: Path
    text: str
    tree: ast.Module

    @property
    def is_init(self) -> bool:
        """Whether the file speaks for its folder."""
        return self.path.name == "__init__.py"

    @property
    def num_lines(self) -> int:
        """Lines of any kind."""
        return len(self.text.splitlines())

    @property
    def package(self) -> str:
        """The folder directly below the package that the file is in."""
        words = self.module.split(".")
        return words[1] if len(words) > 2 or (self.is_init and len(words) == 2) else TOP


@dataclass(frozen=True)
class Figures:
    """What is counted in one tree."""

    packages: dict[str, tuple[int, int]]
    """Files and lines, by package."""
    init_files: int
    single_importers: int
    small_single_importers: int
    deepest_chain: int
    field_places: int
    participles: int

    def to_json(self) -> str:
        """One line, for the page."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Figures:
        """The figures that a page holds."""
        values = json.loads(text)
        packages = {name: (files, lines) for name, (files, lines) in values.pop("packages").items()}
        return cls(packages=packages, **values)


class SourceTree:
    """The files of a package, and who imports whom."""

    def __init__(self, root: Path) -> None:
        source = root / "src"
        paths = sorted((source / PACKAGE).rglob("*.py"))
        if not paths:
            raise SystemExit(f"{root} holds no src/{PACKAGE}")
        self.files = {file.module: file for path in paths for file in [_read_source(path, source)]}

    def measure(self) -> Figures:
        """All figures of the tree."""
        counts = Counter(file.package for file in self.files.values())
        lines = Counter(file.package for file in self.files.values() for _ in range(file.num_lines))
        single = self.single_importers()
        return Figures(
            packages={name: (counts[name], lines[name]) for name in sorted(counts)},
            init_files=sum(file.is_init for file in self.files.values()),
            single_importers=len(single),
            small_single_importers=sum(self.files[module].num_lines < SMALL_FILE for module in single),
            deepest_chain=len(self.deepest_chain()),
            field_places=len(self.field_places()),
            participles=len(self.participles()),
        )

    def single_importers(self) -> dict[str, str]:
        """The modules that exactly one other file imports, each with that one."""
        importers = defaultdict(set)
        for module, file in self.files.items():
            if not file.is_init:
                for imported in self._imports(file, follow_names=True) - {module}:
                    importers[imported].add(module)
        single = {module: min(names) for module, names in sorted(importers.items()) if len(names) == 1}
        return {module: importer for module, importer in single.items() if not self.files[module].is_init}

    def deepest_chain(self) -> list[str]:
        """The longest chain of modules, each of which imports the next; of a circle, one of its modules."""
        imports = {module: self._imports(file) - {module} for module, file in self.files.items()}
        circle_of = find_circles(imports)
        below: dict[str, set[str]] = defaultdict(set)
        for module, imported in imports.items():
            below[circle_of[module]] |= {circle_of[name] for name in imported} - {circle_of[module]}

        @cache
        def chain_from(module: str) -> tuple[str, ...]:
            return (module, *longest(below[module]))

        def longest(modules: Iterable[str]) -> tuple[str, ...]:
            return max((chain_from(module) for module in sorted(modules)), key=len, default=())

        return list(longest(set(circle_of.values())))

    def field_places(self) -> list[tuple[str, str]]:
        """Every string literal that is a step field's name, with its place."""
        tables = [file for file in self.files.values() if _step_field_names(file.tree)]
        names = {name for table in tables for name in _step_field_names(table.tree)}
        return sorted(
            (node.value, f"{self._name_of(file)}:{node.lineno}")
            for file in self.files.values()
            if file not in tables
            for node in _whole_texts(file.tree)
            if node.value in names
        )

    def participles(self) -> list[tuple[str, str]]:
        """Every function that is named by a participle, with its place."""
        return [
            (name, f"{self._name_of(file)}:{line}")
            for file in self.files.values()
            for name, line in functions_named_by_participles(file.tree)
        ]

    def _imports(self, file: SourceFile, *, follow_names: bool = False) -> set[str]:
        """The modules of the package that a file imports; where names are followed, those that names come from."""
        return {
            self._origin(module, name) if follow_names else self._module_of(module, name)
            for module, name in _list_imports(file)
            if self._module_of(module, name) in self.files
        }

    def _module_of(self, module: str, name: str) -> str:
        """The module that `from module import name` loads last."""
        return f"{module}.{name}" if f"{module}.{name}" in self.files else module

    def _origin(self, module: str, name: str) -> str:
        """The module that a name comes from, through every `__init__.py` that passes it on."""
        loaded = self._module_of(module, name)
        if loaded == module and self.files[module].is_init:
            for inner_module, inner_name in _list_imports(self.files[module]):
                if inner_name == name and inner_module in self.files and inner_module != module:
                    return self._origin(inner_module, name)
        return loaded

    def _name_of(self, file: SourceFile) -> str:
        top = next(parent for parent in file.path.parents if parent.name == PACKAGE)
        return file.path.relative_to(top).as_posix()


def functions_named_by_participles(tree: ast.Module) -> list[tuple[str, int]]:
    """The name and line of each function or method whose first word is a participle; properties are nouns."""
    return sorted(
        (node.name, node.lineno)
        for node in ast.walk(tree)
        if isinstance(node, Function) and not _is_property(node)
        if is_participle(node.name.strip("_").partition("_")[0])
    )


def find_circles(imports: dict[str, set[str]]) -> dict[str, str]:
    """For each module the first one, by name, of the circle that it is in; its own name where it is in none."""
    reached: dict[str, set[str]] = {}
    for module in imports:
        seen: set[str] = set()
        waiting = [module]
        while waiting:
            for name in imports[waiting.pop()] - seen:
                seen.add(name)
                waiting.append(name)
        reached[module] = seen
    return {module: min([module, *(name for name in reached[module] if module in reached[name])]) for module in imports}


def _read_source(path: Path, source: Path) -> SourceFile:
    words = path.relative_to(source).with_suffix("").parts
    text = path.read_text(encoding="utf-8")
    module = ".".join(words[:-1] if words[-1] == "__init__" else words)
    return SourceFile(module, path, text, ast.parse(text))


def _list_imports(file: SourceFile) -> Iterator[tuple[str, str]]:
    """Every import that runs, as (module, name); the name is empty where the module itself is imported."""
    for node in _walk_running(file.tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from ((node.module, alias.name) for alias in node.names)


def _walk_running(node: ast.AST) -> Iterator[ast.AST]:
    """Every node below this one, without what only a type checker reads."""
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING")):
            yield child
            yield from _walk_running(child)


def _whole_texts(tree: ast.Module) -> list[ast.Constant]:
    """The string literals of a file that are no piece of a formatted one."""
    pieces = {id(piece) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for piece in node.values}
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in pieces
    ]


def _step_field_names(tree: ast.Module) -> set[str]:
    """The names in the table of step fields: `StepField(name="task", ...)`."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    entries = [call for call in calls if getattr(call.func, "id", None) == "StepField"]
    return {ast.literal_eval(word.value) for entry in entries for word in entry.keywords if word.arg == "name"}


def _is_property(node: Function) -> bool:
    marks = [ast.unparse(mark) for mark in node.decorator_list]
    return any(mark.endswith(("property", ".setter", ".getter", ".deleter")) for mark in marks)


@contextmanager
def open_tree(place: str) -> Iterator[SourceTree]:
    """The tree in a folder, or of a git revision."""
    if (Path(place) / "src" / PACKAGE).is_dir():
        yield SourceTree(Path(place))
        return
    archive = subprocess.run(["git", "archive", place, "src"], cwd=HERE, capture_output=True, check=False)
    if archive.returncode:
        raise SystemExit(f"{place} is neither a folder with src/{PACKAGE} nor a git revision of this repository")
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
            files.extractall(folder, filter="data")
        yield SourceTree(Path(folder))


def measure(place: str) -> Figures:
    """The figures of a folder or a revision."""
    with open_tree(place) as tree:
        return tree.measure()


def format_table(columns: dict[str, Figures]) -> str:
    """The figures in Markdown, one column a tree."""
    heads = list(columns)
    packages = sorted({name for figures in columns.values() for name in figures.packages})
    rows = [[f"`{name}`: files, lines", *(_package_cell(columns[head], name) for head in heads)] for name in packages]
    rows.append(["all: files, lines", *(_total_cell(columns[head]) for head in heads)])
    for label, field in (
        ("files that only speak for their folder, `__init__.py`", "init_files"),
        ("files with a single importer", "single_importers"),
        (f"of these below {SMALL_FILE} lines", "small_single_importers"),
        ("deepest import chain, files", "deepest_chain"),
        ("places that spell a step's field", "field_places"),
        ("functions named by participles", "participles"),
    ):
        rows.append([label, *(f"{getattr(columns[head], field):,}" for head in heads)])
    lines = [["", *heads], ["---", *("---:" for _ in heads)], *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _package_cell(figures: Figures, package: str) -> str:
    if package not in figures.packages:
        return ""
    files, lines = figures.packages[package]
    return f"{files}, {lines:,}"


def _total_cell(figures: Figures) -> str:
    files, lines = (sum(counts) for counts in zip(*figures.packages.values(), strict=True))
    return f"{files}, {lines:,}"


def list_items(tree: SourceTree, what: str) -> list[str]:
    """What one figure counts, a line each."""
    if what == "participles":
        return [f"{place} {name}" for name, place in sorted(tree.participles(), key=lambda item: item[1])]
    if what == "fields":
        return [f"{name} {place}" for name, place in tree.field_places()]
    if what == "chain":
        return tree.deepest_chain()
    return [
        f"{tree.files[module].num_lines:4} {module} <- {importer}"
        for module, importer in sorted(tree.single_importers().items(), key=lambda item: tree.files[item[0]].num_lines)
    ]


def read_figures(page: str, mark: str) -> Figures:
    """The figures that a page holds behind a mark."""
    rest = page.partition(mark)[2]
    if not rest:
        raise SystemExit("the page holds no figures yet: name the revision to compare with")
    return Figures.from_json(rest.partition(" -->")[0])


def fill_page(page: str, before: Figures, after: Figures) -> str:
    """The page with the table between its markers, and both columns' figures beside it to be read again."""
    first, begin, rest = page.partition(BEGIN)
    _, end, last = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"the page has no place for the table: a line {BEGIN} and a line {END}")
    stored = f"{BEFORE}{before.to_json()} -->\n{AFTER}{after.to_json()} -->"
    table = format_table({"before": before, "after": after})
    return f"{first}{BEGIN}\n{stored}\n\n{table}\n{END}{last}"


def main(arguments: list[str] | None = None) -> None:
    """Print, list or write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trees", nargs="*", help="folders or git revisions; default: this tree")
    parser.add_argument("--list", choices=("participles", "single-importers", "chain", "fields"), dest="what")
    parser.add_argument("--write", type=Path, metavar="PAGE")
    chosen = parser.parse_args(arguments)
    trees = chosen.trees or [str(HERE)]
    if chosen.what:
        with open_tree(trees[0]) as tree:
            print(*list_items(tree, chosen.what), sep="\n")
    elif chosen.write:
        page = chosen.write.read_text(encoding="utf-8")
        before = measure(trees[0]) if chosen.trees else read_figures(page, BEFORE)
        chosen.write.write_text(fill_page(page, before, measure(str(HERE))), encoding="utf-8")
    else:
        print(format_table({place if chosen.trees else "this tree": measure(place) for place in trees}), end="")


if __name__ == "__main__":
    main()
