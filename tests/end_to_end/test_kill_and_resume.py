"""A run that is killed twenty times and resumed ends as the one that never was: weights, metrics, rollouts, credit."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

pytest.importorskip("torch")


from benchmarks.faults.small_runs import HGPO, R3, REMEMBERING
from benchmarks.faults.small_runs import UPDATES as FEWER
from groupwise.learner.critic import CRITIC
from groupwise.store.checkpoint_files import read_state
from groupwise.training.config.run_file import load_run
from tests.effort import THOROUGH
from tests.end_to_end.resumed_runs import (
    UPDATES,
    check_curves,
    check_evaluations,
    check_rollouts,
    check_weights,
    open_journal,
    train_with_kills,
)

RUN = (
    HGPO.replace(f"updates = {FEWER}", f"updates = {UPDATES}")
    .replace("every = 3", "every = 4")
    .replace("tasks = 60\nepochs = 2", "tasks = 150\nepochs = 4")
)
"""The campaign's run with more updates and a longer start: room for twenty kills."""
RESCUED = (
    R3.replace(f"updates = {FEWER}", f"updates = {UPDATES}")
    .replace("every = 3", "every = 4")
    .replace("epochs = 2", "epochs = 4")
)
"""Tasks that come round at once, few rollouts: it replays, reflects and ranks."""
STAGES = {"open", "warm start", "checkpoint", "evaluate", "rollout", "learn", "sync", "write"}
"""In each of which a run must be killed."""
MAX_RUNS = 3
"""Kills come by the clock: on a busy machine one may miss the stage that it was meant for, and is tried once more."""


@pytest.mark.more
def test_a_run_that_is_killed_twenty_times_ends_as_the_one_that_never_was(tmp_path: Path) -> None:
    met = set[str]()
    for number in range(MAX_RUNS):
        folder = tmp_path / f"{number}"
        folder.mkdir()
        killed = train_with_kills(folder, num_kills=20, run=RUN)
        assert len(killed) == 20
        check_weights(folder)
        with open_journal(folder / "whole") as whole, open_journal(folder / "killed") as resumed:
            check_curves(whole, resumed)
            check_evaluations(whole, resumed)
            check_rollouts(whole, resumed, load_run(folder / "killed" / "config.toml").algorithm)
        met |= {name for name, _ in killed}
        if met >= STAGES:
            return
    raise AssertionError(f"no kill came in {STAGES - met}")


def test_a_run_that_replays_and_reflects_ends_alike_too(tmp_path: Path) -> None:
    num_kills = 10 if THOROUGH else 3
    assert len(train_with_kills(tmp_path, num_kills=num_kills, run=RESCUED)) == num_kills
    check_weights(tmp_path)
    with open_journal(tmp_path / "whole") as whole, open_journal(tmp_path / "killed") as resumed:
        check_curves(whole, resumed)
        tasks = {row["task"] for row in whole.rollouts() if row["origin"] == "fresh"}
        num_replayed = 0
        for number in whole.update_numbers():
            assert list(resumed.trajectories(number)) == list(whole.trajectories(number))
            assert resumed.past_rollouts.list_replayed(number) == whole.past_rollouts.list_replayed(number)
            num_replayed += len(whole.past_rollouts.list_replayed(number))
        resumed.past_rollouts.check(tasks)
        assert num_replayed > 2
        assert {row["origin"] for row in whole.rollouts()} == {"fresh", "reflected"}
        assert whole.curve("shaping/groups")


WITH_CRITIC = RUN.replace('method = "hgpo"', 'method = "ppo"\ncritic_lr = 1e-2').replace(
    "[training.learner]", "[training.learner]\npasses = 2"
)
"""The same with a value model, which has weights and an optimizer of its own."""


def test_a_run_with_a_critic_ends_alike_to_the_bit(tmp_path: Path) -> None:
    num_kills = 10 if THOROUGH else 3
    assert len(train_with_kills(tmp_path, num_kills=num_kills, run=WITH_CRITIC)) == num_kills
    check_weights(tmp_path)
    with open_journal(tmp_path / "whole") as whole, open_journal(tmp_path / "killed") as resumed:
        check_curves(whole, resumed)
        check_rollouts(whole, resumed, load_run(tmp_path / "killed" / "config.toml").algorithm)
        chain = whole.check_digest_chain()
        assert chain.fault is None
        assert resumed.check_digest_chain() == chain
        assert whole.curve("critic/loss")
        assert len({value for _, value in whole.curve("critic/value")}) == UPDATES
    for number in (0, 2, 4, 6, UPDATES):
        files = [tmp_path / name / "checkpoints" / f"{number:04d}" / CRITIC for name in ("whole", "killed")]
        assert files[0].read_bytes() == files[1].read_bytes()


MEMORIES = {
    "algorithm.advantage.of": "a baseline of each task",
    "algorithm.loss.penalties.0": "the multiplier of R2VPO",
    "algorithm.loss.penalties.1": "the usual entropies of EPO",
}
"""The parts of the run below that remember."""
REMEMBERED = (
    REMEMBERING.replace(f"updates = {FEWER}", f"updates = {UPDATES}")
    .replace("every = 3", "every = 4")
    .replace("tasks = 60\nepochs = 2", "tasks = 150\nepochs = 4")
)
"""Three memories at once, with a longer start: room for twenty kills."""


@pytest.mark.more
def test_a_run_whose_parts_remember_ends_alike_to_the_bit_when_it_is_killed_twenty_times(tmp_path: Path) -> None:
    """State, weights and journal: after every update and in every checkpoint."""
    assert len(train_with_kills(tmp_path, num_kills=20, run=REMEMBERED)) == 20
    check_weights(tmp_path)
    with open_journal(tmp_path / "whole") as whole, open_journal(tmp_path / "killed") as resumed:
        check_curves(whole, resumed)
        check_evaluations(whole, resumed)
        check_rollouts(whole, resumed, load_run(tmp_path / "killed" / "config.toml").algorithm)
        chain = whole.check_digest_chain()
        assert chain.fault is None
        assert resumed.check_digest_chain() == chain
        for number in whole.update_numbers():
            assert resumed.states_before(number) == whole.states_before(number)
        first, last = ({state.path: state.state for state in whole.states_before(number)} for number in (1, UPDATES))
        assert set(first) == set(MEMORIES)
        for path in MEMORIES:
            assert first[path] != last[path], f"nothing was remembered at {path}"
    for number in (0, 2, 4, 6, UPDATES):
        states = [read_state(tmp_path / name / "checkpoints" / f"{number:04d}") for name in ("whole", "killed")]
        assert states[0]["parts"] == states[1]["parts"]
        assert set(states[0]["parts"]) == set(MEMORIES)


OVERLAPPING = RESCUED.replace("[rollout]", "[rollout]\nlag = 1")
"""The same, with the rollouts of each update played while the one before is learnt."""


@pytest.mark.more
def test_a_run_that_plays_ahead_ends_alike_too(tmp_path: Path) -> None:
    killed = train_with_kills(tmp_path, num_kills=12, run=OVERLAPPING)
    assert {"learn", "wait", "prepare", "sync", "write"} <= {name for name, _ in killed}
    check_weights(tmp_path)
    check_chains(tmp_path)


SERVED = OVERLAPPING + '\n[engine]\nkind = "server"\n'
"""The same, with the engine in another process, which every process that trains starts and stops."""


@pytest.mark.slow
def test_a_run_that_plays_ahead_in_another_process_ends_as_the_one_in_a_single_one(tmp_path: Path) -> None:
    (tmp_path / "local").mkdir()
    assert train_with_kills(tmp_path / "local", num_kills=0, run=OVERLAPPING) == []
    assert len(train_with_kills(tmp_path, num_kills=2, run=SERVED)) == 2
    check_weights(tmp_path)
    check_chains(tmp_path)
    shutil.copytree(tmp_path / "local" / "whole", tmp_path / "whole", dirs_exist_ok=True)  # beside it: the served run
    check_weights(tmp_path)
    check_chains(tmp_path)


def check_chains(folder: Path) -> None:
    """Every row of every update is the same, and so is what was played ahead at each checkpoint."""
    with open_journal(folder / "whole") as whole, open_journal(folder / "killed") as resumed:
        chain = whole.check_digest_chain()
        assert chain.fault is None
        assert len(chain.digests) == 1 + UPDATES
        assert resumed.check_digest_chain() == chain
        pending = [whole.digest_pending(number) for number in (2, 4, 6)]
        assert None not in pending
        assert [resumed.digest_pending(number) for number in (2, 4, 6)] == pending
