"""What a task of each environment shows to be impossible is refused before a model loads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from groupwise import ConfigError
from groupwise.training.config.checks import check_algorithm, check_tasks, list_notices
from groupwise.training.config.run_config import RunConfig
from groupwise.training.config.run_file import decode_run
from groupwise.training.doctor.preview import preview_run
from groupwise.training.open_run import open_run_host
from tests.unit.envs.corridor import CorridorPart
from tests.unit.envs.row_sets import sums, write_rows

FUNCTIONS = "tests.unit.credit.own_functions"
TALKING = {"name": "sums", "env": {"kind": "countdown"}}
LISTING = {"name": "home", "env": {"kind": "household", "num_receptacles": 3, "num_objects": 2}}


def configure(**sections: Any) -> RunConfig:
    run: dict[str, Any] = {"algorithm": {"method": "grpo"}, "model": {"kind": "tiny"}, "evaluation": {"tasks": 4}}
    return decode_run(run | sections)


def check(config: RunConfig) -> None:
    check_algorithm(config)
    with open_run_host(config) as host:
        check_tasks(config, host)


def ask_without_verifier(tmp_path: Path) -> dict[str, Any]:
    path = write_rows(tmp_path / "rows.jsonl", sums(0, 60))
    return {"kind": "data_set", "path": path, "columns": {"prompt": "question"}, "verifier": "none"}


def pay_by(name: str, **settings: Any) -> list[dict[str, Any]]:
    return [{"kind": "function", "function": f"{FUNCTIONS}:{name}", **settings}]


def test_somebody_must_pay_and_say_what_success_is(tmp_path: Path) -> None:
    env = ask_without_verifier(tmp_path)
    with pytest.raises(ConfigError) as raised:
        check(configure(env=env))
    assert str(raised.value) == (
        'env: verifier = "none" needs a reward that judges, and there is none; add [[rewards]] with kind = '
        '"function", or choose a verifier'
    )
    with pytest.raises(ConfigError) as raised:
        check(configure(env=env, rewards=pay_by("match_answer")))
    assert str(raised.value) == (
        'env: with verifier = "none" an evaluation cannot say which rollouts succeeded; set solved_at of the reward '
        "that judges, or evaluation.tasks = 0"
    )
    check(configure(env=env, rewards=pay_by("match_answer"), evaluation={"tasks": 0}))
    check(configure(env=env, rewards=pay_by("match_answer", solved_at=1)))


def test_in_a_mixture_the_sentence_says_which_environment(tmp_path: Path) -> None:
    members = [LISTING, {"name": "mine", "env": ask_without_verifier(tmp_path)}]
    with pytest.raises(ConfigError, match=r'^env \(mine\): verifier = "none" needs a reward that judges'):
        check(configure(env={"kind": "mixture", "members": members}))


def test_a_column_that_a_reward_takes_and_the_data_lack_is_named(tmp_path: Path) -> None:
    rows = [{"question": row["question"]} for row in sums(0, 60)]
    env = ask_without_verifier(tmp_path) | {"path": write_rows(tmp_path / "bare.jsonl", rows)}
    with pytest.raises(ConfigError) as raised:
        check(configure(env=env, rewards=pay_by("match_answer", solved_at=1)))
    assert str(raised.value).startswith(
        f"rewards: the function '{FUNCTIONS}:match_answer' takes 'answer', which is no column of task 'data_set-train-"
    )
    assert str(raised.value).endswith("; its columns are question: add it to the data, or give the parameter a default")


def test_environments_whose_action_rules_differ_are_refused_by_name() -> None:
    choosing = {"action_parser": "choice", "template": {"show_admissible": "numbered"}}
    with pytest.raises(ConfigError) as raised:
        check(configure(env={"kind": "mixture", "members": [LISTING, TALKING]}, rollout=choosing))
    assert str(raised.value) == (
        "env: rollout.action_parser 'choice' fits home, which lists its possible actions, but not sums, whose actions "
        "are free text. Mix environments that fit one action parser, or set rollout.action_parser to "
        '"whole_response" or "tagged"'
    )
    check(configure(env={"kind": "mixture", "members": [LISTING, TALKING]}))
    echo = {"name": "echo", "env": {"kind": "identity"}}
    check(configure(env={"kind": "mixture", "members": [LISTING, echo]}, rollout=choosing))


def test_every_environment_must_have_the_expert_and_the_info_that_are_asked_for(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "bare.jsonl", [{"prompt": f"{n}?"} for n in range(60)])
    mute = {"name": "mute", "env": {"kind": "data_set", "path": path, "verifier": "none"}}
    env = {"kind": "mixture", "members": [TALKING, mute]}
    with pytest.raises(ConfigError, match="the environment has no expert to start from"):
        check(configure(env=env, rewards=pay_by("count_tokens", solved_at=1), warm_start={"tasks": 2}))
    members = [{"name": "lists", "env": {"kind": "ranked_lists"}}, TALKING]
    with pytest.raises(ConfigError, match="'item_relevance', which the environment 'countdown' does not give"):
        check(configure(algorithm={"method": "rank_grpo"}, env={"kind": "mixture", "members": members}))


def test_a_method_that_compares_across_tasks_is_worth_a_notice() -> None:
    mixed = {"kind": "mixture", "members": [LISTING, TALKING]}
    assert list_notices(configure(env=mixed)) == []
    [notice] = list_notices(configure(algorithm={"method": "reinforce_pp"}, env=mixed))
    assert notice.endswith(
        "compares across tasks, and so across the environments home, sums: their rewards should have the same scale"
    )
    assert list_notices(configure(algorithm={"method": "reinforce_pp"}, env={"kind": "countdown"})) == []


def test_a_preview_shows_a_task_of_each_with_its_own_instruction_and_weighs_what_they_take() -> None:
    mixed = configure(env={"kind": "mixture", "members": [TALKING | {"weight": 9}, LISTING]}, training={"tasks": 10})
    shown = preview_run(mixed, num_tasks=1)
    begins = ["".join(rollout.steps[0].prompt_texts) for rollout in shown.rollouts]
    assert len(begins) == 2
    assert ["write an expression" in text for text in begins] == [True, False]
    alone = [preview_run(configure(env=member["env"], training={"tasks": 10})).costs for member in (TALKING, LISTING)]
    assert shown.costs.sampled_tokens == round(0.9 * alone[0].sampled_tokens + 0.1 * alone[1].sampled_tokens)
    assert alone[0].distinct_tokens < shown.costs.distinct_tokens < alone[1].distinct_tokens / 2


def test_a_member_without_tasks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.unit.envs.corridor.CorridorPart.task_set", lambda self, split: ())
    bare = {"name": "bare", "env": {"kind": "tests.unit.envs.corridor:CorridorPart"}}
    with pytest.raises(
        ConfigError, match=r"^env \(bare\): CorridorPart has no training tasks; give its train task set "
    ):
        check(configure(env={"kind": "mixture", "members": [TALKING, bare]}, rollout={"workers": 0}))


def test_a_split_without_tasks_cannot_be_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    full = CorridorPart.task_set
    monkeypatch.setattr(CorridorPart, "task_set", lambda self, split: () if split == "test" else full(self, split))
    corridor = {"kind": "tests.unit.envs.corridor:CorridorPart"}
    check(configure(env=corridor, evaluation={"split": "test", "tasks": 0}, rollout={"workers": 0}))
    with pytest.raises(ConfigError) as raised:
        check(configure(env=corridor, evaluation={"split": "test", "tasks": 2}, rollout={"workers": 0}))
    assert str(raised.value) == "evaluation.split: CorridorPart has no tasks in 'test'; choose another split"
