"""What the pages show can be copied: Python runs, run files decode, and commands are ones that there are."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import tomli_w
import typer

from groupwise.cli.main import make_app
from groupwise.training.config.run_file import load_run
from tests.architecture.markdown import Block, blocks_of, current_pages, inline_code_of
from tests.architecture.sources import PACKAGE, ROOT

PYTHON_RUN_BY = {
    "README.md": "tests/architecture/test_documents.py",
    "docs/howto/agents.md": "tests/end_to_end/test_agents.py",
    "docs/howto/alarms.md": "tests/unit/training/test_python_runs.py",
    "docs/howto/audit.md": "tests/end_to_end/test_audit_page.py",
    "docs/howto/agents/state_rules.md": "tests/end_to_end/test_state_rules_page.py",
    "docs/reference/envs/aliased.md": "tests/unit/envs/test_environments_page.py",
    "benchmarks/pages/line_credit.md": "tests/unit/envs/test_environments_page.py",
    "docs/learn/idea_to_model.md": "tests/end_to_end/idea_to_model.py",
    "docs/howto/mixtures.md": "tests/end_to_end/test_mixture.py",
    "docs/howto/python.md": "tests/unit/training/test_python_runs.py",
    "docs/reference/rollouts.md": "tests/unit/store/test_format_page.py",
    "docs/howto/extending": "tests/architecture/test_seams.py",
    "docs/learn/own_environment.md": "tests/end_to_end/test_your_own_environment.py",
    "docs/learn/own_data.md": "tests/end_to_end/test_your_own_data.py",
    "docs/howto/your_trainer.md": "tests/unit/training/test_python_runs.py",
    "docs/learn/own_method.md": "tests/end_to_end/test_your_own_method.py",
    "docs/howto/report.md": "tests/architecture/test_snippets.py",
}
"""Which test runs the Python of a page, or of the pages in a folder."""
LANGUAGES = {"", "text", "python", "bash", "sh", "console", "toml", "jsonl"}
PAGES = [page for page in current_pages() if not page.startswith("docs/methods/notes/")]
TOML = [block for page in PAGES for block in blocks_of(page, "toml")]
SHELL = [block for page in PAGES for block in blocks_of(page, "bash", "sh", "console")]
OWN_MODULES = {
    "thermostat": "docs/learn/own_environment.md",
    "sooner": "docs/learn/own_method.md",
    "rewards": "docs/learn/own_data.md",
    "my_package": "docs/howto/extending/engine.md",
    "my_critics": "docs/howto/extending/critic.md",
}
"""The modules into which readers copy the Python of a page; other pages may name them too."""
OTHER_PROGRAMS = {"source", "export", "alfworld-download", "mutmut", "torchrun", "sed"}
LAUNCHERS = {"sbatch", "docker", "kubectl"}
"""Programs that are given files of deploy/."""
"""What pages call that is neither ours nor Python's."""


@pytest.mark.parametrize("page", PAGES)
def test_every_block_is_of_a_language_that_the_tests_know(page: str) -> None:
    unknown = [block.place for block in blocks_of(page) if block.language not in LANGUAGES]
    assert unknown == []


def test_the_python_of_every_page_is_run_by_a_test() -> None:
    coded = {page for page in PAGES if blocks_of(page, "python")}
    run_by = {page: test for page in coded for place, test in PYTHON_RUN_BY.items() if page.startswith(place)}
    assert coded - run_by.keys() == set()
    for page, test in run_by.items():
        assert Path(page).parent.name in (text := (ROOT / test).read_text(encoding="utf-8")) or page in text, page
        assert "exec(" in text or "write_text(" in text, test


def test_the_python_of_the_page_about_reports_reads_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    from groupwise import open_run, train

    short = ["training.updates=1", "evaluation.tasks=0"]
    monkeypatch.chdir(tmp_path)
    with open_run(load_run(ROOT / "examples" / "identity.toml", overrides=short), Path("runs/home")) as run:
        train(run)
    [block] = blocks_of("docs/howto/report.md", "python")
    exec(compile(block.text, block.page, "exec"), {})
    assert capsys.readouterr().out.startswith("[1] ")


@pytest.mark.parametrize("block", TOML, ids=lambda block: block.page)
def test_run_files_and_parts_of_them_decode(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "outside" / "packages"))
    monkeypatch.syspath_prepend(str(tmp_path))
    for module, page in OWN_MODULES.items():
        code = "\n\n".join(python.text for python in blocks_of(page, "python"))
        (tmp_path / f"{module}.py").write_text(code, encoding="utf-8")
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "base.toml").write_text("seed = 1\n", encoding="utf-8")  # docs/reference/settings.md extends it
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / "mine.txt").write_text("$rollout", encoding="utf-8")  # docs/methods/r3.md names one
    for name in ("first.txt", "later.txt"):  # docs/howto/prompts.md names both
        shutil.copy(ROOT / "examples" / "prompts" / f"alfworld_{name}", tmp_path / "prompts" / name)
    shutil.copytree(ROOT / "examples" / "agents", tmp_path / "examples" / "agents")  # docs/howto/agents.md
    run: dict[str, Any] = {"model": {"kind": "tiny"}, **tomllib.loads(block.text)}
    if "agent" not in run:
        run.setdefault("env", {"kind": "identity"})
    algorithm = run.setdefault("algorithm", {})
    if "advantage" not in algorithm:
        algorithm.setdefault("method", "grpo")
    file = tmp_path / "run.toml"
    file.write_text(tomli_w.dumps(run), encoding="utf-8")
    player = "agent" if "agent" in run else "env"
    assert load_run(file).config()[player]["kind"] == run[player]["kind"]


@pytest.mark.parametrize("block", SHELL, ids=lambda block: block.page)
def test_commands_are_ones_that_there_are(block: Block) -> None:
    text = block.text
    if block.language == "console":  # what the reader types, and what the command answers
        text = "\n".join(line for line in text.splitlines() if line.startswith("$ "))
    wrong = [f"{command}: {reason}" for command in commands_in(text) for reason in faults_of(command)]
    assert wrong == []


@pytest.mark.parametrize("page", PAGES)
def test_commands_in_the_prose_are_ones_that_there_are(page: str) -> None:
    """Options alone: prose leaves out arguments, and names what stands for something."""
    wrong = []
    for code in inline_code_of(page):
        if code.startswith("groupwise "):
            words = re.sub(r"[\[\]()]|\.\.\.", " ", code).split()
            wrong += [f"{code}: {reason}" for reason in unknown_options(words[1:])]
        elif code.startswith(("make ", "python -m ", "python docs/")):
            wrong += [f"{code}: {reason}" for reason in faults_of(shlex.split(code))]
    assert wrong == []


@pytest.mark.parametrize(
    ("command", "is_wrong"),
    [
        ("groupwise inspect --diff runs/a runs/b", False),
        ("groupwise inspect runs/a --diff runs/b", True),
        ("groupwise train examples/identity.toml --set training.updates=2", False),
        ("groupwise train examples/nothing.toml", True),
        ("groupwise train examples/identity.toml --sett a=1", True),
        ("make test", False),
        ("make tests", True),
        ("make test-vllm RECORD=1", False),
        ("make test-vllm RECORDS=1", True),
        ("python -m benchmarks.credit --write x.json", False),
        ("python -m benchmarks.nothing", True),
        ("pip install 'groupwise[train]'", False),
        ("pip install 'groupwise[trains]'", True),
    ],
)
def test_wrong_commands_are_found_out(command: str, is_wrong: bool) -> None:
    assert bool([*faults_of(shlex.split(command))]) == is_wrong


def commands_in(text: str) -> list[list[str]]:
    """The commands of a block, without prompts, comments, redirections and what the shell does with them."""
    commands = []
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line.removeprefix("$ "), comments=True)
        command: list[str] = []
        for word in words:
            if word in ("&&", "&", "|", ";"):
                commands.append(command)
                command = []
            else:
                command.append(word)
        commands.append(command)
    return [command for command in commands if command]


def faults_of(command: list[str]) -> list[str]:
    """What is wrong with a command, in words; nothing where it would be understood."""
    program, *arguments = Path(command[0]).name, *command[1:]
    if "=" in program:  # a variable that is set
        return []
    if program == "groupwise":
        return command_faults(arguments)
    if program == "make":
        return [
            f"no {'variable' if is_variable else 'target'} {name}"
            for name, is_variable, _ in (word.partition("=") for word in arguments)
            if (f"$({name})" if is_variable else f"\n{name}:") not in makefile()
        ]
    if program == "pip":
        return unknown_extras(arguments)
    if program in ("python", "python3"):
        return python_faults(arguments)
    if program in LAUNCHERS:
        files = [word for word in arguments if word.startswith("deploy/")]
        return [f"no file {word}" for word in files if not (ROOT / word).is_file()]
    return [] if program in OTHER_PROGRAMS else [f"{program} is not a program that the tests know"]


def command_faults(arguments: list[str]) -> list[str]:
    """What the command says of its arguments, and which files of the repository they name that are not there."""
    command, rest = command_of(arguments)
    if hasattr(command, "commands"):
        return [f"no command {rest[:1]}"]
    try:
        command.make_context(command.name, list(rest))
    except Exception as error:  # what is raised depends on typer's version
        return [str(error)]
    folders = ("examples/", "benchmarks/", "docs/", "tests/")
    return [f"no file {word}" for word in rest if word.startswith(folders) and not (ROOT / word).exists()]


def unknown_options(words: list[str]) -> list[str]:
    """Options that a command does not have; a command that there is not."""
    command, rest = command_of([word.rstrip(",;:") for word in words])
    if hasattr(command, "commands") and rest and not rest[0].startswith("-"):
        return [f"no command {rest[0]}"]
    known = {name for parameter in command.params for name in parameter.opts} | {"--help"}
    asked = [word.partition("=")[0].rstrip(".") for word in rest if word.startswith("--")]
    return [f"no option {option}" for option in asked if option not in known]


def command_of(words: list[str]) -> tuple[Any, list[str]]:
    """The command that the first words name, and the words after them."""
    command: Any = typer.main.get_command(make_app())
    while words and words[0] in getattr(command, "commands", ()):
        command, words = command.commands[words[0]], words[1:]
    return command, words


def unknown_extras(arguments: list[str]) -> list[str]:
    """Extras of the package that pip is asked for and that there are not."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    ours = [word for word in arguments if "groupwise" in word or word.startswith(".[")]
    asked = [extra for word in ours for names in re.findall(r"\[([\w,]+)\]", word) for extra in names.split(",")]
    return [f"no extra {extra}" for extra in asked if extra not in extras]


def python_faults(arguments: list[str]) -> list[str]:
    """Scripts, modules and their options that there are not."""
    if arguments[0] != "-m":
        return [] if (ROOT / arguments[0]).is_file() else [f"no script {arguments[0]}"]
    module, *options = arguments[1:]
    if module.partition(".")[0] not in ("benchmarks", "conformance", "tests", "groupwise"):
        return []
    path = ROOT / module.replace(".", "/")
    sources = [*path.glob("*.py")] if path.is_dir() else [path.with_suffix(".py")]
    sources = [source for source in sources if source.is_file()] or [*(PACKAGE / "cli").glob(f"{module[10:]}.py")]
    if not sources:
        return [f"no module {module}"]
    text = "\n".join(source.read_text(encoding="utf-8") for source in sources)
    return [f"no option {option}" for option in options if option.startswith("--") and f'"{option}"' not in text]


def makefile() -> str:
    return (ROOT / "Makefile").read_text(encoding="utf-8")
