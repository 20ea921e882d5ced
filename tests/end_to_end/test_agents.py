"""The household played by an agent over HTTP is the built-in loop, to the bit; also with delays and kills."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tomli_w

pytest.importorskip("torch")

from transformers import AutoModelForCausalLM

from groupwise import train
from groupwise.agents.chat import check_request
from groupwise.agents.function_agent import IS_AGENT
from groupwise.learner.protocol import hash_weights
from groupwise.store.checkpoint_files import find_latest_checkpoint
from groupwise.system.errors import ConfigError
from groupwise.training.config.run_file import decode_run, load_run
from groupwise.training.doctor.preview import preview_run
from groupwise.training.open_run import open_run
from tests.architecture.markdown import blocks_of
from tests.architecture.sources import ROOT
from tests.effort import THOROUGH
from tests.end_to_end.household_agent import DELAY, HOUSE, write_tasks
from tests.end_to_end.resumed_runs import (
    UPDATES,
    check_curves,
    check_evaluations,
    check_weights,
    open_journal,
    train_with_kills,
)

AGENT = {"kind": "function", "path": "tests.end_to_end.household_agent:play"}
TEXTS = ("observation", "action")
"""Of an agent these are its messages; token ids say that the model read and wrote the same."""
NOT_OF_ROLLOUTS = ("seconds/", "speed/", "weights/")


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the tasks, a model that knows some commands, and the run of the built-in loop."""
    folder = tmp_path_factory.mktemp("household")
    write_tasks(folder / "tasks.jsonl", num=40)
    warm_start = {"tasks": 400, "epochs": 4, "learning_rate": 4e-3, "batch_tokens": 512}
    model = {"kind": "tiny", "hidden": 32, "layers": 2}
    first = {"training": {"updates": 0}, "evaluation": {"tasks": 0}, "warm_start": warm_start, "model": model}
    train(settings_of(folder, built_in=True, updates=2) | first, folder / "first")
    train(settings_of(folder, built_in=True, updates=2), folder / "built_in")
    return folder


def settings_of(folder: Path, *, built_in: bool, updates: int) -> dict[str, Any]:
    """The same run for the built-in loop and for the agent: they differ in who plays."""
    rollout = {"max_tokens": 8, "group_size": 6}
    tasks = {"path": str(folder / "tasks.jsonl"), "id": "id", "split": "split", "tag": "tag"}
    player = {"env": HOUSE.config()} if built_in else {"agent": {**AGENT, "tasks": tasks, "timeout": 60}}
    return {
        "threads": 1,
        "algorithm": {"method": "hgpo", "invalid_penalty": 0.1},
        "model": {"kind": "pretrained", "path": str(folder / "first" / "checkpoints" / "0000")},
        "rollout": rollout | ({"history": "full"} if built_in else {}),
        "training": {
            "updates": updates,
            "tasks": 3,
            "checkpoint_every": 1,
            "curriculum": {"kind": "shuffled", "first": 6},
            "learner": {"learning_rate": 1e-3, "token_budget": 2048},
        },
        "evaluation": {"split": "test", "tasks": 4, "every": 4, "temperature": 1.0},
        **player,
    }


def check_same_run(folder: Path, other: Path, *, without: tuple[str, ...]) -> None:
    """Rollouts, advantages, metrics, evaluations and weights of two runs, to the bit."""
    with open_journal(folder) as ours, open_journal(other) as theirs:
        assert ours.update_numbers() == theirs.update_numbers() == [1, 2]
        for number in ours.update_numbers():
            played = [[drop(rollout, without) for rollout in run.trajectories(number)] for run in (ours, theirs)]
            assert played[0] == played[1]
            assert any(any(rollout["credit"]) for rollout in played[0]), "the rollouts teach something"
        for name in ours.metric_names():
            if not name.startswith(NOT_OF_ROLLOUTS):
                assert ours.curve(name) == theirs.curve(name), name
        assert ours.evaluations() == theirs.evaluations()
    first = weights_of(folder / "checkpoints" / "0000")
    assert weights_of(find_latest_checkpoint(folder / "checkpoints")) != first
    assert weights_of(find_latest_checkpoint(folder / "checkpoints")) == weights_of(
        find_latest_checkpoint(other / "checkpoints")
    )


def drop(rollout: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    steps = [{name: value for name, value in step.items() if name not in names} for step in rollout["steps"]]
    return {**rollout, "steps": steps}


def weights_of(checkpoint: Path | None) -> str:
    assert checkpoint is not None
    return str(hash_weights(AutoModelForCausalLM.from_pretrained(checkpoint).state_dict()))


def test_an_agent_through_the_endpoint_is_the_built_in_loop(played: Path, tmp_path: Path) -> None:
    train(settings_of(played, built_in=False, updates=2), tmp_path / "run")
    check_same_run(played / "built_in", tmp_path / "run", without=TEXTS)


def test_delays_of_tools_and_a_resume_change_nothing(
    played: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_of(played, built_in=False, updates=2)
    train(settings, tmp_path / "whole")
    monkeypatch.setenv(DELAY, "0.02")
    with open_run(settings, tmp_path / "stopped") as run:
        next(iter(run.updates()))
    with open_run(load_run(tmp_path / "stopped"), tmp_path / "stopped") as run:
        train(run, resume=True)
    check_same_run(tmp_path / "whole", tmp_path / "stopped", without=())


@pytest.mark.more
def test_a_run_of_agents_that_is_killed_ends_as_the_one_that_never_was(played: Path, tmp_path: Path) -> None:
    settings = settings_of(played, built_in=False, updates=UPDATES)
    num_kills = 10 if THOROUGH else 4
    assert len(train_with_kills(tmp_path, num_kills=num_kills, run=tomli_w.dumps(settings))) == num_kills
    check_weights(tmp_path)
    with open_journal(tmp_path / "whole") as whole, open_journal(tmp_path / "killed") as resumed:
        check_curves(whole, resumed)
        check_evaluations(whole, resumed)
        for number in whole.update_numbers():
            assert list(resumed.trajectories(number)) == list(whole.trajectories(number))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"rollout": {"history": "full"}}, "rollout.history: an agent writes its own prompts"),
        ({"rollout": {"template": "prompt_template"}}, "rollout.template: an agent writes its own prompts"),
        ({"rollout": {"system": "Be short."}}, "rollout.system: an agent writes its own prompts"),
        ({"rollout": {"action_parser": "whole_response"}}, "rollout.action_parser: an agent writes its own prompts"),
        ({"rollout": {"over_limit": "cut_left", "max_prompt_tokens": 9}}, "rollout.over_limit: an agent is told"),
        ({"rollout": {"plan": "top_up"}}, "rollout.plan: other plans than flat were not tried with agents"),
        ({"warm_start": {}}, "warm_start: an agent has no expert"),
        ({"env": {"kind": "household"}}, "a run has an environment or an agent; leave out [env] or [agent]"),
        ({"agent": None}, "write [env] with a `kind`"),
    ],
)
def test_settings_that_do_not_fit_an_agent(tmp_path: Path, changes: dict[str, Any], sentence: str) -> None:
    write_tasks(tmp_path / "tasks.jsonl", num=1)
    settings = settings_of(tmp_path, built_in=False, updates=1)
    merged = {**settings, **changes}
    if changes.get("rollout"):
        merged["rollout"] = {**settings["rollout"], **changes["rollout"]}
    if changes.get("agent", "") is None:
        del merged["agent"]
    with pytest.raises(ConfigError) as refused:
        decode_run(merged)
    assert sentence in str(refused.value)


def test_the_settings_of_a_run_of_agents_are_read_again(tmp_path: Path) -> None:
    write_tasks(tmp_path / "tasks.jsonl", num=1)
    config = decode_run(settings_of(tmp_path, built_in=False, updates=1))
    written = config.config()
    assert "env" not in written
    assert not {"history", "template", "system", "action_parser"} & {*written["rollout"]}
    assert decode_run(written) == config


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ('{"split": "train"}', "tasks.jsonl:1: there is no column 'id'; its columns are 'split'"),
        (
            '{"id": 1, "split": "dev", "tag": "a"}',
            "tasks.jsonl:1: the column 'split' is 'dev'; write one of train, validation, test",
        ),
        (
            '{"id": 1, "split": "train", "tag": "a"}\n{"id": 1, "split": "test", "tag": "a"}',
            "tasks.jsonl:2: the id '1' is also that of ",
        ),
        ("[1]", "tasks.jsonl:1: found list; a task is an object with named fields"),
    ],
)
def test_task_files_that_are_wrong(tmp_path: Path, row: str, sentence: str) -> None:
    settings = settings_of(tmp_path, built_in=False, updates=1)
    (tmp_path / "tasks.jsonl").write_text(f"{row}\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"tasks\.jsonl") as refused:
        decode_run(settings).env.task_set("train")
    assert sentence in str(refused.value)


def test_a_function_that_is_not_marked_is_no_agent(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, built_in=False, updates=1)
    settings["agent"]["path"] = "tests.end_to_end.household_agent:write_tasks"
    with pytest.raises(ConfigError, match=r"is not marked as an agent; write @groupwise\.agent above it"):
        decode_run(settings)


def test_a_preview_runs_no_agent(tmp_path: Path) -> None:
    config = decode_run(settings_of(tmp_path, built_in=False, updates=1))
    with pytest.raises(ConfigError, match="agent: only a running agent writes prompts"):
        preview_run(config)


def test_the_agent_of_the_page_is_one() -> None:
    [block] = blocks_of("docs/howto/agents.md", "python")
    names: dict[str, Any] = {}
    exec(compile(block.text, block.page, "exec"), names)
    asked = list[dict[str, Any]]()

    def create(**body: Any) -> Any:
        asked.append(check_request(body))
        return SimpleNamespace(choices=[SimpleNamespace(message=SimpleNamespace(content="4"))])

    client = SimpleNamespace(chat=SimpleNamespace(completions=SimpleNamespace(create=create)))
    session = SimpleNamespace(client=lambda: client)
    assert names["answer"]({"question": "2 + 2", "answer": "4"}, session) == 1.0
    assert names["answer"]({"question": "2 + 2", "answer": "5"}, session) == 0.0
    assert asked[0]["messages"] == [{"role": "user", "content": "2 + 2"}]
    assert hasattr(names["answer"], IS_AGENT)


def test_the_example_trains(tmp_path: Path) -> None:
    short = ["training.updates=2", "rollout.group_size=8", "evaluation.rollouts=1"]
    with open_run(load_run(ROOT / "examples" / "agents" / "repeat.toml", overrides=short), tmp_path / "run") as run:
        train(run)
        played = list(run.journal.trajectories(2))
    assert len(played) == 32
    assert {step["state"] for rollout in played for step in rollout["steps"]} == {"asked 1 times", "asked 2 times"}
    assert {len(rollout["steps"]) for rollout in played} == {1, 2}
