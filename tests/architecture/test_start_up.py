"""What `import groupwise` and the command line load, and how long that takes; each in a fresh interpreter."""

from __future__ import annotations

from pathlib import Path

import pytest

import groupwise
from tests.architecture.sources import ROOT
from tests.fresh_interpreter import HELP, fresh, without

IMPORT_SECONDS = 0.5
HELP_SECONDS = 1.0
SLACK = 1.5
"""The promise is for a quiet machine; a guard that runs beside other tests on any machine allows half as much again."""
NUM_RUNS = 5


def takes_under(seconds: float, code: str, bytecode: Path) -> bool:
    """Whether the fastest of several runs takes less: processor seconds, since the clock counts other processes too.

    Bytecode is kept in a folder, as where the package is installed: an environment that forbids it would compile all
    sources at every run.
    """
    keep = f"import sys\nsys.dont_write_bytecode, sys.pycache_prefix = False, {str(bytecode)!r}\n"
    return any(float(fresh(keep + code).splitlines()[-1]) < seconds for _ in range(NUM_RUNS))


def test_credit_needs_numpy_and_pydantic_only() -> None:
    code = without("torch", "typer", "rich", "tomli_w", "jinja2", "pyarrow", "click") + (
        "from groupwise import StepTable, methods\n"
        "table = StepTable.from_columns(task=['t', 't'], rollout=[0, 1], step=[0, 0], reward=[1.0, 0.0])\n"
        "print(methods.dr_grpo().advantage(table).values.tolist())\n"
    )
    assert fresh(code) == "[0.5, -0.5]\n"


def test_the_command_line_needs_no_torch() -> None:
    shown = fresh(without("torch") + HELP.format(arguments=["--help"]))
    assert "audit" in shown
    listed = fresh(without("torch") + HELP.format(arguments=["methods"]))
    assert "hgpo" in listed


EXAMPLE = str(ROOT / "examples" / "alfworld_rollouts.jsonl")


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["audit", EXAMPLE], "Findings"),
        (["check", "rollouts", EXAMPLE], "copied-rollout"),
        (
            [
                "explain",
                EXAMPLE,
                "--task",
                "look_at_obj_in_light-Statue-None-DeskLamp-216",
                "--rollout",
                "0",
                "--step",
                "0",
            ],
            "by hand",
        ),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_what_reads_files_needs_no_torch_and_no_pyarrow(arguments: list[str], shown: str) -> None:
    """`inspect` and `report` are put to the same in tests/unit/cli, where there is a run to read."""
    blocked = without("torch", "transformers", "pyarrow")
    assert shown in fresh(blocked + HELP.format(arguments=arguments))


def test_the_sections_of_a_run_file_need_no_torch() -> None:
    code = without("torch", "transformers") + (
        "from groupwise.parts.part import Slot\n"
        "from groupwise.training.config.run_config import RunConfig\n"
        "print(Slot('engine').fill({'rows': 8}).config())\n"
    )
    assert fresh(code).startswith("{'kind': 'local', 'decoding': 'auto', 'rows': 8,")


def test_the_schema_of_run_files_and_every_example_need_no_torch() -> None:
    blocked = without("torch", "transformers", "tokenizers", "peft")
    assert "TinyModel" in fresh(blocked + HELP.format(arguments=["schema"]))
    code = blocked + (
        "from pathlib import Path\n"
        "from groupwise import load_run\n"
        f"for path in sorted(Path({str(ROOT / 'examples')!r}).glob('*.toml')): load_run(path); print(path.name)\n"
    )
    assert "alfworld.toml" in fresh(code)


def test_importing_takes_under_half_a_second(tmp_path: Path) -> None:
    code = "import time\nstart = time.process_time()\nimport groupwise\nprint(time.process_time() - start)"
    assert takes_under(SLACK * IMPORT_SECONDS, code, tmp_path)


def test_help_takes_under_a_second(tmp_path: Path) -> None:
    code = HELP.format(arguments=["--help"]) + "import time\nprint(time.process_time())"
    assert takes_under(SLACK * HELP_SECONDS, code, tmp_path)


def test_the_public_names_are_these() -> None:
    assert groupwise.__all__ == [
        "Algorithm",
        "ConfigError",
        "Credit",
        "Ended",
        "FileError",
        "GroupwiseError",
        "Origin",
        "Part",
        "RecordError",
        "RunConfig",
        "RunObserver",
        "Step",
        "StepTable",
        "StopReason",
        "Task",
        "Trajectory",
        "__version__",
        "agent",
        "export_run",
        "load_run",
        "methods",
        "open_run",
        "read_run",
        "train",
    ]
    assert all(hasattr(groupwise, name) for name in groupwise.__all__)


def test_training_is_loaded_when_it_is_asked_for() -> None:
    code = (
        "import sys, groupwise\n"
        "before = 'torch' in sys.modules\n"
        "groupwise.RunConfig, groupwise.load_run, groupwise.RunObserver\n"
        "between = 'torch' in sys.modules\n"
        "from groupwise import open_run, train\n"
        "print(before, between, open_run.__module__, train.__module__)\n"
    )
    assert fresh(code) == "False False groupwise.training.open_run groupwise.training.loop\n"


def test_training_without_torch_says_what_to_install() -> None:
    code = without("torch") + (
        "import groupwise\n"
        "try:\n    groupwise.open_run\nexcept ImportError as error:\n    print(error)\n"
        "try:\n    groupwise.opne_run\nexcept AttributeError as error:\n    print(error)\n"
    )
    assert fresh(code) == (
        "groupwise.open_run needs torch, which is not installed: pip install 'groupwise[train]'\n"
        "module 'groupwise' has no attribute 'opne_run'\n"
    )
