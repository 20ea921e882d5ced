"""R^3 through a vLLM server, which gives no entropies: the learner measures them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from groupwise.envs import Identity
from groupwise.models import TinyModel
from groupwise.models.folder import load_model
from groupwise.store.journal import Journal
from groupwise.training.config.engine_config import VllmServerConfig
from groupwise.training.config.run_config import EvaluatedTaskSet, EvaluationConfig, RolloutConfig, RunConfig
from groupwise.training.evaluation.summary import group_rows
from tests.end_to_end import runs
from tests.measured_numbers import Numbers
from tests.vllm.environment import PYTHON

TEMPERATURE = 0.7


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two updates, ended after the first and resumed."""
    folder = tmp_path_factory.mktemp("r3")
    runs.run_to_end(folder, make_config(1)).close()
    runs.run_to_end(folder, make_config(2), resume=True).close()
    return folder


def make_config(updates: int) -> RunConfig:
    config = runs.config(
        updates,
        method="r3",
        checkpoint_every=1,
        env=Identity(num_words=4, length=2),
        rollout=RolloutConfig(max_tokens=3, group_size=8, temperature=TEMPERATURE),
        engine=VllmServerConfig(python=PYTHON, flags=("--max-num-seqs", "32")),
        evaluation=EvaluationConfig(
            tasks=1,
            rollouts=8,
            temperature=1.0,
            task_sets=(EvaluatedTaskSet(name="whole"), EvaluatedTaskSet(name="sure", top_k=1)),
        ),
    )
    return config.model_copy(update={"model": TinyModel(hidden=64, layers=2, heads=2)})


def test_the_ranking_trains_on_entropies_of_the_weights_that_sampled(ended: Path, numbers: Numbers) -> None:
    far, num, shaped = 0.0, 0, 0.0
    with Journal(ended / "journal.sqlite", read_only=True) as journal:
        assert journal.update_numbers() == [1, 2]
        for number in (1, 2):
            model = load_model(str(ended / "checkpoints" / f"{number - 1:04d}"), dtype=torch.float32)
            for row in journal.trajectories(number):
                if row["origin"] != "fresh":
                    continue
                for step in row["steps"]:
                    far = max(far, measure_gap(model, step))
                    num += len(step["entropy"])
            shaped = max(shaped, journal.metrics(number)["shaping/groups"])
    numbers.measured["entropies of the learner: largest gap to transformers"] = far
    assert num > 50
    assert far < 1e-4
    assert shaped > 0, "some group was ranked"


@torch.no_grad()
def measure_gap(model: Any, step: dict[str, Any]) -> float:
    ids = torch.tensor([[*step["prompt_ids"], *step["response_ids"]]])
    logits = model(input_ids=ids).logits[0, len(step["prompt_ids"]) - 1 : -1] / TEMPERATURE
    expected = torch.distributions.Categorical(logits=logits).entropy().tolist()
    assert len(step["entropy"]) == len(expected)
    return max(abs(a - b) for a, b in zip(step["entropy"], expected, strict=True))


def test_an_evaluation_through_the_server_may_truncate(ended: Path) -> None:
    with Journal(ended / "journal.sqlite", read_only=True) as journal:
        rows = journal.evaluations(2)
    spread = {
        name: {(row.success, row.steps, row.tokens) for row in of_one}
        for name, of_one in group_rows(rows, lambda row: [row.name])
    }
    assert set(spread) == {"whole", "sure"}
    assert len(spread["sure"]) == 1, "the most likely token each time"
