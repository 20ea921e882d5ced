"""GARDO's KL: where it counts, when the policy becomes the reference, and that a resumed run has that reference."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest

from groupwise import Algorithm, ConfigError, StepTable, methods
from groupwise.credit.signals import ColumnMean
from groupwise.losses import PolicyLoss
from groupwise.methods.gardo import DistinctCredit, DoubtGate, GatedKl
from groupwise.parts.stateful import ObservedUpdate
from groupwise.system.errors import RecordError, TrainingError
from groupwise.training.config.run_config import RunConfig
from groupwise.training.loop import train
from groupwise.training.open_run import open_run
from groupwise.training.part_states import PartStates
from tests.unit.training.runs import small_config

PATH = "algorithm.loss.penalties.0"


def observe(part: GatedKl, *divergences: float) -> list[int]:
    """Which update's policy is the reference after each."""
    state, references = part.start(seed=0), []
    for number, kl in enumerate(divergences, start=1):
        metrics = {"loss/kl_to_reference": kl} if math.isfinite(kl) else {}
        state.observe(ObservedUpdate(number=number, trajectories=[], credit=[], metrics=metrics))
        references.append(state.reference)
    return references


def test_the_policy_becomes_the_reference_when_it_is_too_far_or_too_old() -> None:
    assert observe(GatedKl(max_kl=0.05, every=3), 0.01, 0.06, 0.05, 0.0, 0.0, 0.1) == [0, 2, 2, 2, 5, 6]
    assert observe(GatedKl(max_kl=0.05, every=None), 0.01, math.nan, 0.06) == [0, 0, 3]
    assert observe(GatedKl(max_kl=math.inf, every=None), 1e9) == [0]
    assert observe(GatedKl(every=1), math.nan, math.nan) == [1, 2]


def test_the_gate_has_the_numbers_of_the_specification() -> None:
    table = StepTable.from_columns(
        task=[0, 0, 1, 1], rollout=[0, 1, 0, 1], step=[0] * 4, reward=[9.0, 7.0, 8.0, 3.0], taste=[0.9, 0.2, 0.1, 0.5]
    )
    gate = DoubtGate(auxiliary=(ColumnMean(name="taste"),))
    assert gate.measure_doubt(table).tolist() == pytest.approx([0, 0, 2 / 3, -2 / 3])
    assert gate(table).values.tolist() == [0.0, 0.0, 4.0, 0.0]
    assert DoubtGate()(table).values.tolist() == [1.0] * 4
    assert gate(table.with_task_columns({"gate_share": {0: 1.0, 1: 1.0}})).values.tolist() == [4 / 3, 4 / 3, 4 / 3, 0.0]


def test_a_first_share_outside_its_limits_is_refused() -> None:
    with pytest.raises(ConfigError) as error:
        DoubtGate(first=0.5)
    assert str(error.value) == (
        "DoubtGate: first (0.5) is not from lowest (0.02) to highest (0.2); give limits around it"
    )


def weigh(points: list[list[float]], rewards: list[float]) -> list[float]:
    table = StepTable.from_columns(
        task=[0] * len(points), rollout=[*range(len(points))], step=[0] * len(points), reward=rewards, embedding=points
    )
    return DistinctCredit(of=methods.dr_grpo().advantage)(table).values.tolist()


def test_distinct_credit_has_the_numbers_of_the_specification() -> None:
    points = [[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [0.6, 0.8]]
    assert weigh(points, [1.0, 0.8, 0.6, 0.2]) == pytest.approx([0.583333, 0.05, -0.05, -0.45], abs=1e-6)
    assert weigh([[1.0, 2.0]] * 3, [1.0, 0.0, 0.5]) == [0.5, -0.5, 0.0]
    assert weigh([[1.0, 2.0]], [1.0]) == [0.0]
    # The third said nothing: it keeps its credit, and the first two are each other's neighbours.
    assert weigh([[1.0, 0.0], [0.0, 1.0], []], [1.0, 0.0, 0.5]) == [0.5, -0.5, 0.0]


@pytest.mark.parametrize(
    ("point", "words"),
    [
        ([1.0], "task 0, rollout 1, step 0: embedding is no list of 2 numbers; measure it with response_embedding"),
        (3.0, "task 0, rollout 1, step 0: embedding is no list of 2 numbers; measure it with response_embedding"),
        ([1.0, math.nan], "embedding holds a number that is not finite; measure it with response_embedding"),
    ],
)
def test_points_that_are_none_are_refused(point: Any, words: str) -> None:
    with pytest.raises(RecordError) as error:
        weigh([[1.0, 0.0], point], [1.0, 0.0])
    assert str(error.value) == words


def config(updates: int, **options: Any) -> RunConfig:
    small = small_config(updates=updates)
    algorithm = methods.gardo(diversity=False, **{"every": 2, "max_kl": math.inf, "weight": 0.5} | options)
    training = small.training.model_copy(update={"checkpoint_every": 100})  # none is due in between but for a reference
    return small.model_copy(update={"algorithm": algorithm, "training": training})


def finish(updates: int, folder: Path, **options: Any) -> dict[str, list[float]]:
    """Run to the end, or go on to it; what the learner measured in each update, by name."""
    with open_run(config(updates, **options), folder) as run:
        train(run, resume=(folder / "checkpoints").exists())
        names = [name for name in run.journal.metric_names() if name.startswith(("loss/", "learner/"))]
        return {name: [value for _, value in run.journal.curve(name)] for name in names}


def read_weights(folder: Path, number: int) -> bytes:
    return (folder / f"checkpoints/{number:04d}/model.safetensors").read_bytes()


def test_a_run_moves_its_reference_keeps_it_and_resumes_with_it_to_the_bit(tmp_path: Path) -> None:
    whole = finish(5, tmp_path / "whole")
    assert whole["learner/reference"] == [0.0, 2.0, 2.0, 4.0, 4.0]
    kept = sorted(path.name for path in (tmp_path / "whole/checkpoints").glob("[0-9]*"))
    assert kept == ["0000", "0002", "0004", "0005"]
    finish(3, tmp_path / "cut")  # the reference is that of update 2, the last checkpoint that of update 3
    assert finish(5, tmp_path / "cut") == whole
    assert read_weights(tmp_path / "whole", 5) == read_weights(tmp_path / "cut", 5)
    state = json.loads((tmp_path / "cut/checkpoints/0005/state.json").read_text())["parts"]
    assert state[PATH] == {"kind": "gated_kl", "state": {"reference": 4}}
    still, moved = finish(3, tmp_path / "still", every=None)["loss/kl_to_reference"], whole["loss/kl_to_reference"]
    assert still[:2] == moved[:2]
    assert still[2] > moved[2]


def test_a_kl_of_no_weight_keeps_no_reference(tmp_path: Path) -> None:
    measured = finish(3, tmp_path, weight=0.0)
    assert "learner/reference" not in measured
    assert sorted(path.name for path in (tmp_path / "checkpoints").glob("[0-9]*")) == ["0000", "0003"]


def test_a_reference_that_is_gone_stops_a_resumed_run(tmp_path: Path) -> None:
    finish(3, tmp_path)
    shutil.rmtree(tmp_path / "checkpoints/0002")
    with pytest.raises(TrainingError) as error:
        finish(5, tmp_path)
    assert str(error.value).endswith(
        "It holds the reference of the loss, the policy of update 2; put it back from a copy, or start the run again"
    )


def test_two_that_choose_the_reference_are_refused() -> None:
    loss = PolicyLoss(penalties=(GatedKl(), GatedKl(every=3)))
    algorithm = Algorithm(advantage=methods.grpo().advantage, channels={"kl_gate": DoubtGate()}, loss=loss)
    with pytest.raises(ConfigError) as error:
        PartStates.start(small_config().model_copy(update={"algorithm": algorithm}), seed=0, tasks=[])
    assert str(error.value) == (
        "algorithm.loss.penalties.0 (gated_kl) and algorithm.loss.penalties.1 (gated_kl) both say which policy is the "
        "reference; leave one of them out"
    )
