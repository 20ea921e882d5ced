"""A warm start stands behind the same walls as rollouts: what an expert's environment does costs its own rollout."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from groupwise import methods
from groupwise.cli.screen import CHATTY
from groupwise.envs import Identity
from groupwise.models import TinyModel
from groupwise.rollout.environment_runner import InProcess
from groupwise.rollout.worker_pool import Workers
from groupwise.system.errors import ConfigError, EnvironmentFault, GroupwiseError, TrainingError
from groupwise.training.config.run_config import (
    EvaluationConfig,
    RolloutConfig,
    RunConfig,
    TrainingConfig,
    WarmStartConfig,
)
from groupwise.training.loop import train
from groupwise.training.observer import RunObserver
from groupwise.training.open_run import open_run
from groupwise.training.run import Run
from groupwise.training.warm_start import make_expert_samples, make_recorded_samples
from tests.faults.bad_teachers import BadTeacher, UnrulyTaskSet, Unteachable

ROOT = Path(__file__).parents[2]
TASKS = 8


def run_of(folder: Path, env: Any, workers: int | str, **more: Any) -> Run:
    config = RunConfig(
        algorithm=methods.build("grpo"),
        env=env,
        model=TinyModel(hidden=16, layers=1, heads=2),
        rollout=RolloutConfig(max_tokens=2, workers=workers, env_timeout=0.5),  # type: ignore[arg-type]
        training=TrainingConfig(updates=0, tasks=1),
        evaluation=EvaluationConfig(tasks=0),
        **{"warm_start": WarmStartConfig(tasks=TASKS, epochs=1), **more},
    )
    return open_run(config, folder)


def make_samples(env: Any, workers: int, folder: Path) -> tuple[list[Any], dict[str, int]]:
    causes: dict[str, int] = {}

    def report(counts: Mapping[str, int], rollouts: int) -> None:
        assert rollouts == TASKS
        causes.update(counts)

    run = run_of(folder, env, workers)
    with run.host:
        return make_expert_samples(run, run.tasks[:TASKS], WarmStartConfig(), report_faults=report), causes


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    samples, causes = make_samples(BadTeacher(), 0, tmp_path_factory.mktemp("sound"))
    assert causes == {}
    assert len(samples) == 2 * TASKS
    return samples


CAUSES = {
    "raise": "RuntimeError: the roof fell in",
    "exit": "SystemExit: 0",
    "die": "the worker ended with status 0",
    "kill": "the worker was killed by SIGSEGV",
    "hang": "no answer within 0.5 seconds",
}
EVERYWHERE = [(trouble, 0, place) for trouble in ("raise", "exit") for place in ("open", "observe", "expert", "act")]


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("trouble", "workers", "place"),
    [
        *EVERYWHERE,
        ("raise", 1, "expert"),
        ("exit", 1, "act"),
        ("die", 1, "open"),
        ("die", 1, "expert"),
        ("kill", 1, "act"),
        ("hang", 1, "expert"),
    ],
)
def test_a_fault_costs_its_own_rollout(
    tmp_path: Path, sound: list[Any], trouble: str, workers: int, place: str
) -> None:
    cause = CAUSES[trouble]
    samples, causes = make_samples(BadTeacher(trouble=trouble, place=place), workers, tmp_path)
    assert sum(causes.values()) == TASKS // 4
    assert all(cause in message for message in causes), causes
    # What is learnt of the others is what is learnt without the fault, sample by sample.
    assert samples == [sample for sample in sound if sample.trajectory % 4 != 3]


@pytest.mark.parametrize("workers", [0, 1])
def test_too_many_faults_stop_the_run_with_the_cause(tmp_path: Path, workers: int) -> None:
    run = run_of(tmp_path, BadTeacher(trouble="raise", every=1), workers)
    with run.host, pytest.raises(TrainingError) as caught:
        make_expert_samples(run, run.tasks[:TASKS], WarmStartConfig())
    assert str(caught.value) == (
        f"warm start: only 0 of {TASKS} expert rollouts survived ({TASKS} x RuntimeError: the roof fell in); fix the "
        "environment"
    )


def test_observers_hear_of_the_faults(tmp_path: Path) -> None:
    class Listener(RunObserver):
        heard: tuple[Mapping[str, int], int] | None = None

        def on_expert_faults(self, causes: Mapping[str, int], rollouts: int) -> None:
            self.heard = (causes, rollouts)

    listener, run = Listener(), run_of(tmp_path, BadTeacher(trouble="raise"), 0)
    train(run, observers=[listener])
    assert listener.heard == ({"RuntimeError: the roof fell in": 2}, TASKS)


@pytest.mark.parametrize("workers", [0, 1])
def test_an_environment_without_an_expert_is_refused_before_a_model_loads(tmp_path: Path, workers: int) -> None:
    with pytest.raises(ConfigError) as caught:
        run_of(tmp_path, Unteachable(), workers)
    assert str(caught.value) == "the environment has no expert to start from; leave out [warm_start]"


@pytest.mark.parametrize(("trouble", "workers"), [("raise", 0), ("exit", 0), ("die", 1)])
def test_a_goal_that_cannot_be_had_costs_its_recorded_rollout(tmp_path: Path, trouble: str, workers: int) -> None:
    causes: dict[str, int] = {}
    run = run_of(tmp_path, BadTeacher(trouble=trouble, place="open"), workers)
    rows: Any = [
        {"task": task.id, "rollout": 0, "step": 0, "reward": 1.0, "observation": "Say alpha.", "action": "alpha"}
        for task in run.tasks[:TASKS]
    ]
    with run.host:
        samples = make_recorded_samples(run, rows, report_faults=lambda counts, _: causes.update(counts))
    assert [sample.trajectory for sample in samples] == [number for number in range(TASKS) if number % 4 != 3]
    assert sum(causes.values()) == TASKS // 4


def test_environments_from_elsewhere_run_in_a_worker_unless_it_is_said(tmp_path: Path) -> None:
    for env, workers, kind in (
        (BadTeacher(), "auto", Workers),
        (BadTeacher(), 0, InProcess),
        (Identity(), "auto", InProcess),
    ):
        run = run_of(tmp_path / f"{env.slot} {workers} {kind.__name__}", env, workers, warm_start=None)
        with run.host:
            assert isinstance(run.host, kind)
            assert run.config.config()["rollout"]["workers"] == workers, "the run's own file says it"
            assert RunConfig(**run.config.config()) == run.config


@pytest.mark.parametrize("workers", [-1, 1.5, True, "two"])
def test_a_wrong_number_of_workers_is_one_sentence(workers: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        RolloutConfig(workers=workers)
    complaint = f'workers: found {workers!r}; give a number of processes, 0 or more, or "auto"'
    assert str(caught.value) == f"RolloutConfig: {complaint}"


WRONG = {
    "task_set None": "UnrulyTaskSet.task_set('train') gave None (NoneType); give a tuple of Tasks",
    "task_set of text": "UnrulyTaskSet.task_set('train') gave 'a' (str); give Tasks alone",
    "task_set one task": "UnrulyTaskSet.task_set('train') gave a Task; give a tuple of Tasks",
    "task_set raise": "UnrulyTaskSet.task_set('train') raised RuntimeError: the roof fell in; fix the environment",
    "task_set exit": "UnrulyTaskSet.task_set('train') raised SystemExit: 0; fix the environment",
    "task id": "UnrulyTaskSet.task_set('train') has a task whose id is 7 (int); give text",
    "task id half": r"UnrulyTaskSet.task_set('train') has a task whose id is 'half \ud83d' (str); give text",
    "task seed": "UnrulyTaskSet.task_set('train') has a task whose seed is '7' (str); give an integer",
    "task payload": "UnrulyTaskSet.task_set('train') has a task whose payload is [1] (list); give a mapping of JSON "
    "values",
    "task tags": "UnrulyTaskSet.task_set('train') has a task whose tags is ('a', 3) (tuple); give a tuple of texts",
    "vocabulary None": "UnrulyTaskSet.vocabulary() gave None (NoneType); give a tuple of words",
    "vocabulary of numbers": "UnrulyTaskSet.vocabulary() gave 1 (int); give words that are text",
    "vocabulary text": "UnrulyTaskSet.vocabulary() gave 'one two' (str); give a tuple of words",
    "vocabulary exit": "UnrulyTaskSet.vocabulary() raised SystemExit: 0; fix the environment",
    "instruction None": "UnrulyTaskSet.instruction() gave None (NoneType); give text",
    "instruction bytes": "UnrulyTaskSet.instruction() gave b'go' (bytes); give text",
    "instruction exit": "UnrulyTaskSet.instruction() raised SystemExit: 0; fix the environment",
}


@pytest.mark.parametrize("wrong", WRONG)
def test_unruly_task_sets_and_words_are_one_sentence(tmp_path: Path, wrong: str) -> None:
    with pytest.raises(ConfigError) as caught:
        run_of(tmp_path, UnrulyTaskSet(wrong=wrong), 0)
    assert str(caught.value) == f"env: {WRONG[wrong]}"


def test_no_training_tasks_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        run_of(tmp_path, UnrulyTaskSet(wrong="task_set empty"), 0)
    assert str(caught.value) == (
        "env: UnrulyTaskSet(wrong='task_set empty') has no training tasks; give its train task set some"
    )


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("task_set die", "UnrulyTaskSet: a worker cannot start: the worker ended with status 0"),
        ("vocabulary die", "UnrulyTaskSet: a worker cannot start: the worker ended with status 0"),
        ("instruction kill", "UnrulyTaskSet: a worker cannot start: the worker was killed by SIGSEGV"),
        ("task_set None", f"UnrulyTaskSet: a worker cannot start: ConfigError: env: {WRONG['task_set None']}"),
    ],
)
def test_an_exit_over_the_tasks_or_the_words_costs_a_worker_and_not_the_run(
    tmp_path: Path, wrong: str, message: str
) -> None:
    with pytest.raises(EnvironmentFault) as caught:
        run_of(tmp_path, UnrulyTaskSet(wrong=wrong), "auto")
    assert str(caught.value) == message


def test_a_part_of_the_main_script_is_told_what_to_do(tmp_path: Path) -> None:
    main = type("Mine", (BadTeacher,), {"__module__": "__main__"})
    with pytest.raises(GroupwiseError) as caught:
        run_of(tmp_path, main(), "auto")
    assert str(caught.value) == (
        "Mine stands in the main script, which workers do not run; move it to a module, or set rollout.workers = 0"
    )


RUN_FILE = """
algorithm = {{ method = "grpo" }}
env = {{ kind = "tests.faults.bad_teachers:BadTeacher", trouble = "die", every = {every} }}
model = {{ kind = "tiny", hidden = 16, layers = 1, heads = 2 }}
training = {{ updates = 0, tasks = 1 }}
evaluation = {{ tasks = 0 }}
warm_start = {{ tasks = 8, epochs = 1 }}
"""


@pytest.mark.parametrize(("every", "status"), [(4, 0), pytest.param(1, 2, marks=pytest.mark.slow)])
def test_the_command_tells_of_exits_and_ends_with_the_status_it_should(tmp_path: Path, every: int, status: int) -> None:
    """`os._exit(0)` in an environment ended `train` with status 0 and no output."""
    (tmp_path / "run.toml").write_text(RUN_FILE.format(every=every))
    command = [sys.executable, "-c", "from groupwise.cli.main import main; main()", "train", "run.toml", "--plain"]
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    ran = subprocess.run(
        command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    assert ran.returncode == status, ran.stderr
    if status == 0:
        assert "warm start: 2 of 8 expert rollouts ended with an error" in ran.stdout + ran.stderr
        assert "the worker ended with status 0" in ran.stdout + ran.stderr
    else:
        assert "error: warm start: only 0 of 8 expert rollouts survived" in ran.stderr
    assert "Traceback" not in ran.stderr
    for package in CHATTY:  # they are installed with what the tests need, and no word of theirs is about this run
        assert package not in ran.stderr
