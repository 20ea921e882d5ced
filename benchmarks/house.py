"""Size of the package, and how much of it one job executes: `python -m benchmarks.house [TREE ...]`.

For each tree (a checkout; by default this one): lines of `src` by kind, files, packages; functions, files and calls of
groupwise that one update of the household example executes, and `groupwise explain` of one step after its imports.
Counted with `sys.setprofile` in the main process of the run. List, set and dict comprehensions are counted apart:
Python 3.12 runs them inline, and 3.11 calls them like functions.
"""

from __future__ import annotations

import ast
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
import tokenize
from pathlib import Path

HERE = Path(__file__).parents[1]
COUNT = """
import sys, threading
class Count:
    def __init__(self): self.calls, self.names, self.inline, self.files = 0, set(), set(), set()
    def __call__(self, frame, event, argument):
        code = frame.f_code
        if event == "call" and "/groupwise/" in code.co_filename:
            self.calls += 1
            is_inline = code.co_name in ("<listcomp>", "<setcomp>", "<dictcomp>")
            where = code.co_filename, code.co_qualname, code.co_firstlineno
            (self.inline if is_inline else self.names).add(where)
            self.files.add(code.co_filename)
    def __enter__(self): threading.setprofile(self); sys.setprofile(self); return self
    def __exit__(self, *error): sys.setprofile(None); threading.setprofile(None)
    def show(self):
        counts = {"functions": len(self.names), "comprehensions": len(self.inline)}
        return {**counts, "files": len(self.files), "calls": self.calls}
"""
UPDATE = (
    COUNT
    + """
import json
from pathlib import Path
import groupwise
from groupwise.training import loop
made, counts, before = loop.make_update, [], Count()
def make_update(*given, **named):
    with Count() as count:
        made_update = made(*given, **named)
    counts.append(count.show())
    return made_update
loop.make_update = make_update
config = groupwise.load_run(Path("examples/household.toml"), overrides=SETTINGS)
groupwise.train(config, Path(sys.argv[1]))
print(json.dumps(counts[-1]))
"""
)
EXPLAIN = (
    COUNT
    + """
import json
from groupwise.cli.main import main
def explain():
    file, place = "examples/alfworld_rollouts.jsonl", ["--task", TASK, "--rollout", "7", "--step", "8"]
    sys.argv = ["groupwise", "explain", file, *place, "--method", "hgpo", "--json"]
    try:
        main()
    except SystemExit as ended:
        assert not ended.code, ended.code
from contextlib import redirect_stdout
import io
with redirect_stdout(io.StringIO()):
    explain()
    with Count() as count:
        explain()
print(json.dumps(count.show()))
"""
)
TASK = "pick_two_obj_and_place-Book-None-Desk-302"
SETTINGS = [
    "training.updates=2",
    "evaluation.tasks=2",
    "warm_start.tasks=4",
    "warm_start.epochs=1",
    "rollout.workers=0",
    "threads=1",
]


def count_lines(text: str) -> dict[str, int]:
    """Lines of one file by kind: code, docstrings, comments, imports, blank."""
    lines = text.splitlines()
    kinds = ["code" if line.strip() else "blank" for line in lines]
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and lines[token.start[0] - 1].strip().startswith("#"):
            kinds[token.start[0] - 1] = "comments"
    for node in ast.walk(ast.parse(text)):
        is_text = (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        )
        kind = "imports" if isinstance(node, ast.Import | ast.ImportFrom) else "docstrings" if is_text else ""
        if kind:
            for number in range(node.lineno - 1, node.end_lineno or node.lineno):  # type: ignore[attr-defined]
                kinds[number] = kind
    return {kind: kinds.count(kind) for kind in ("code", "docstrings", "comments", "imports", "blank")}


def measure_source(tree: Path) -> dict[str, float]:
    """Lines by kind, files, the median file and packages below `src`."""
    files = sorted((tree / "src" / "groupwise").rglob("*.py"))
    counted = [count_lines(path.read_text(encoding="utf-8")) for path in files]
    sums = {kind: sum(count[kind] for count in counted) for kind in counted[0]}
    lines = [sum(count.values()) for count in counted]
    packages = {path.parent for path in files}
    return {
        "lines": sum(lines),
        **sums,
        "files": len(files),
        "median": statistics.median(lines),
        "packages": len(packages),
    }


def run_script(tree: Path, script: str, *arguments: str) -> dict[str, int]:
    """Run a script on a tree's own package, and read the line of JSON that it prints last."""
    environment = os.environ | {"PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(
        [sys.executable, "-c", script.replace("TASK", repr(TASK)).replace("SETTINGS", repr(SETTINGS)), *arguments],
        cwd=tree,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode:
        sys.exit(f"{tree}: {ran.stderr[-2000:]}")
    counts: dict[str, int] = json.loads(ran.stdout.splitlines()[-1])
    return counts


def main(trees: list[str]) -> int:
    """Measure the given checkouts, and print one JSON object per tree."""
    for tree in map(Path, trees or [str(HERE)]):
        with tempfile.TemporaryDirectory() as folder:
            update = run_script(tree, UPDATE, str(Path(folder) / "run"))
        explain = run_script(tree, EXPLAIN)
        print(json.dumps({"tree": tree.name, **measure_source(tree), "update": update, "explain": explain}, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
