"""A prover's values in a run: played from copies of its worlds, written down, and refused where none can be made."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from groupwise import ConfigError, methods
from groupwise.envs import Gridworld, Identity
from groupwise.envs.identity import IdentityEnvironment
from groupwise.report.derived_credit import make_step_table
from groupwise.training.config.run_config import EvaluationConfig, RolloutConfig, RunConfig, WarmStartConfig
from groupwise.training.open_run import open_run
from groupwise.training.run import Run
from tests.end_to_end import runs

LAKE = Gridworld(size=3, num_holes=1, max_steps=4)
PAV = methods.pav(best_of=2, continuations=3)


def config(**changes: object) -> RunConfig:
    few = RolloutConfig(max_tokens=2, group_size=4)
    # Half a second of imitation, after which some rollouts succeed.
    warm = WarmStartConfig(tasks=60, epochs=6, learning_rate=2e-2, batch_tokens=256)
    base = runs.config(1, env=LAKE, rollout=few, evaluation=EvaluationConfig(tasks=0), warm_start=warm)
    return base.model_copy(update={"algorithm": PAV} | changes)


@pytest.fixture(scope="module")
def pav_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return runs.run_to_end(tmp_path_factory.mktemp("pav"), config())


def test_progress_adds_up_to_success_less_the_value_of_the_beginning(pav_run: Run) -> None:
    values, beginnings = set(), set()
    for trajectory in pav_run.journal.trajectories(1):
        info = [row["extra"] for row in trajectory["steps"]]
        success = sum(row["reward"] for row in trajectory["steps"])  # which is all that this world pays
        progress = sum(own["prover_progress"] for own in info)
        assert progress == pytest.approx(success - info[0]["prover_value"])
        values |= {round(3 * own["prover_value"]) for own in info}
        beginnings.add((trajectory["steps"][0]["task"], info[0]["prover_value"]))
    assert values == {0, 2, 3}  # thirds: of 3 continuations, the best of 2, with no success, one, or more
    assert len(beginnings) == 2  # tasks
    (sampled,) = (value for _, value in pav_run.journal.curve("scorers/sampled_tokens"))
    assert sampled > 0


def test_it_is_in_the_journal_and_credit_is_derived_from_there(pav_run: Run) -> None:
    trajectories = list(pav_run.journal.trajectories(1))
    table = make_step_table([row for trajectory in trajectories for row in trajectory["steps"]])
    recorded = [value for trajectory in trajectories for value in trajectory["credit"]]
    assert PAV.advantage(table).values.tolist() == pytest.approx(recorded)
    assert any(progress for progress in table.column("prover_progress"))


@pytest.mark.more
def test_twice_the_same_seed_plays_the_same(pav_run: Run, tmp_path: Path) -> None:
    again = runs.run_to_end(tmp_path, config())
    first, second = (
        [[row["extra"] for row in trajectory["steps"]] for trajectory in run.journal.trajectories(1)]
        for run in (pav_run, again)
    )
    assert first == second


class Rigid(Identity, slot="env"):
    """Worlds that cannot be copied."""

    def open(self, task):  # type: ignore[no-untyped-def]
        return RigidEnvironment(super().open(task))


class RigidEnvironment:
    """Another environment, without its fork."""

    def __init__(self, inner: IdentityEnvironment) -> None:
        self.observe, self.act = inner.observe, inner.act


@pytest.mark.more
def test_a_world_that_cannot_be_copied_is_refused_before_a_model_loads(tmp_path: Path) -> None:
    rigid = config(env=Rigid(num_words=4, length=1), warm_start=None)
    with pytest.raises(ConfigError) as caught:
        open_run(rigid, tmp_path)
    assert str(caught.value).startswith(
        "algorithm.scorers: ProverValues(best_of=2, continuations=3) continues rollouts in copies of their "
        "environments, and this one cannot be copied ("
    )
    assert str(caught.value).endswith("); give the environment fork(), or leave the scorer out")
