"""Every built-in environment keeps every rule; every broken one breaks the rule it was made to break, and no other."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from groupwise.envs import SPLITS, Gymnasium, Household, check_environment, checker, task_set_hash
from groupwise.envs.checker import CheckedEnvironment
from groupwise.envs.household import CATEGORIES
from groupwise.envs.kit.draws import Draws
from groupwise.parts.part import Slot, kind_of, load_catalogue
from tests.conformance.built_in import BUILT_IN, hash_transcripts
from tests.unit.envs.broken_corridors import BREAKS, Straight, part_of
from tests.unit.envs.corridor import CorridorPart

ROOT = Path(__file__).parents[2]

ADAPTED = {
    "FrozenLake": Gymnasium(id="FrozenLake-v1", actions=("left", "down", "right", "up")),
    "Taxi": Gymnasium(id="Taxi-v4", actions=("south", "north", "east", "west", "pickup", "dropoff"), max_steps=30),
}

# Provenance: printed by `task_set_hash(Class().task_set(split))` under CPython 3.11.7 and 3.13.0, which agree. A
# changed hash means that old and new results on this environment cannot be compared: say so in the changelog.
GOLDEN = {
    "household": {
        "train": "37a4a8a2bf39e7f46ebbb0b81484750a9038f12ba33d0cff079a17349f9209e3",
        "validation": "f61d7b37b4413fca01bb0fe60789f5c09a34372d02de8d900fd0c163df42ddfb",
        "test": "f6590aa693dbd8fcde3172cd52b8eefc37d31906aa9439b4140e46085a3ef638",
    },
    "gridworld": {"test": "eb82f4a6738802870f35db136f33bba46d316487b954bd2f57578efd995f29b9"},
    "gridworld, slippery": {"test": "e8785bcc67b895fa62bfe3d0bdbae06b12d58b94156812fea8751934cf73638d"},
    "boxes": {"test": "74b9d152355f9541b701f60853f32e15db26e06dd1049272ee4514374d055b45"},
    "countdown": {"test": "efb32c651e492f390abff3824997fde1a7e69729fa472025cbecbe4bac29d065"},
    "worked_sums": {"test": "f040b0ea1dfffdb740d3fe705feb1a601f54d3b24cf979e2753357862992c371"},
    "ranked_lists": {"test": "828beba649208926f59f56afa25aa40ff7f1c0be5f3034d3c25d2418e64b4b44"},
    "lookup": {"test": "46359cfbc0a302ad6f019bd7eeb41eb9d9cbb92760f1c12063dfcdc785b3756f"},
    "identity": {"test": "71f8c1f5ba2f51aa2276aad5719a1dbbb8a288dd81851f8c7a6adffcfa42732b"},
    "aliased": {"test": "57ec6070dcb87369214903a144569add66412dfc76976f4d77613af4a883af3d"},
}


@pytest.mark.few(8)
@pytest.mark.parametrize("name", BUILT_IN)
def test_built_in_environments_keep_every_rule(name: str) -> None:
    results = check_environment(BUILT_IN[name])
    assert [(result.rule, result.found) for result in results if result.status == "broken"] == []
    assert len(results) == len(checker.RULES)
    untested = {result.rule for result in results if result.status == "not tested"}
    assert untested <= {"admissible_actions_are_accepted", "state_key_has_no_counter_or_clock"}, (
        "free answers have nothing to list, and at a single question nothing comes again"
    )


@pytest.mark.parametrize("name", ADAPTED)
def test_gymnasium_environments_keep_every_rule(name: str) -> None:
    pytest.importorskip("gymnasium")
    results = check_environment(ADAPTED[name], tasks=4)
    assert [(result.rule, result.found) for result in results if result.status == "broken"] == []
    assert [result.rule for result in results if result.status == "not tested"] == ["expert_succeeds"]


def test_a_sound_environment_keeps_every_rule() -> None:
    assert {result.status for result in check_environment(CorridorPart())} == {"kept"}


def test_a_position_that_grows_with_the_steps_is_no_counter() -> None:
    statuses = {result.rule: result.status for result in check_environment(part_of(Straight)())}
    assert statuses["state_key_has_no_counter_or_clock"] == "kept", "after a wasted step the keys are the same"
    assert {rule for rule, status in statuses.items() if status != "kept"} == {"admissible_actions_are_accepted"}


@pytest.mark.parametrize("part", BREAKS, ids=lambda part: part.__name__)
def test_a_broken_environment_breaks_its_rule_and_no_other(part: type[CorridorPart]) -> None:
    results = check_environment(part())
    assert [result.rule for result in results if result.status == "broken"] == [BREAKS[part]]


def test_every_rule_is_broken_by_some_environment() -> None:
    timed = {"acts_fast_enough"}
    assert {rule.__name__ for rule in checker.RULES} == set(BREAKS.values()) | timed


def test_a_slow_environment_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checker, "MIN_STEPS_PER_SECOND", 1e12)
    results = check_environment(CorridorPart())
    assert [result.rule for result in results if result.status == "broken"] == ["acts_fast_enough"]


def test_checking_leaves_the_process_wide_generators_alone() -> None:
    random.seed(3)
    np.random.seed(3)
    expected = random.random(), np.random.random()
    random.seed(3)
    np.random.seed(3)
    check_environment(CorridorPart())
    assert (random.random(), np.random.random()) == expected


def test_every_rule_says_why_it_matters() -> None:
    for result in check_environment(CorridorPart()):
        assert len(result.why.split()) > 8
        assert result.found


def test_the_catalogue_fills_the_slot() -> None:
    for kind, part in load_catalogue("env").items():
        assert kind_of(part) == kind == re.sub(r"(?<!^)(?=[A-Z])", "_", part.__name__).lower()
        assert part.slot == "env"
    filled = Slot("env").fill({"kind": "household", "categories": ["heat"], "num_objects": 3})
    assert filled == Household(categories=("heat",), num_objects=3)
    assert Slot("env").fill(filled.config()) == filled


@pytest.mark.parametrize("family", CATEGORIES)
def test_the_household_expert_solves_200_tasks_of_every_family(family: Any) -> None:
    part = Household(categories=(family,))
    for task in part.task_set("train")[:200]:
        *_, (_, last) = CheckedEnvironment(part=part, tasks=(task,), seed=0).play_by_expert(task)
        assert last.success is True
        assert last.reward == 1.0


@pytest.mark.parametrize("name", GOLDEN)
def test_task_sets_are_the_ones_results_were_measured_on(name: str) -> None:
    for split, expected in GOLDEN[name].items():
        assert task_set_hash(BUILT_IN[name].task_set(split)) == expected


def test_household_task_sets_are_large_enough() -> None:
    sizes = {split: len(Household().task_set(split)) for split in SPLITS}
    assert sizes == {"train": 2400, "validation": 240, "test": 480}


def test_transcripts_are_the_same_in_another_process_with_other_hashes() -> None:
    variables = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    script = f"from tests.conformance.built_in import hash_transcripts as digest; print(digest({list(GOLDEN)}))"
    command = [sys.executable, "-c", script]
    ran = subprocess.run(command, env=variables, cwd=ROOT, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == hash_transcripts(list(GOLDEN))


def test_128_households_step_in_little_memory() -> None:
    part = Household()
    tasks = part.task_set("train")[:128]
    tracemalloc.start()
    try:
        environments = [part.open(task) for task in tasks]
        active, draws = list(environments), Draws("history")
        while active:
            active = [each for each in active if not each.act(draws.pick(each.observe().admissible or ())).ended]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(environments) == 128
    assert peak < 4 * 2**20, f"{peak / 2**20:.1f} MiB for 128 environments"
