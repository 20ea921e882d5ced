"""Runs with replay, reflection and ranking: who takes part, what it is measured by, and whom it must not reach."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from groupwise import ConfigError, Origin, Task, Trajectory, methods
from groupwise.engines.engine import Request
from groupwise.engines.transformers_engine import TransformersEngine
from groupwise.envs import Identity
from groupwise.learner.protocol import hash_weights
from groupwise.methods.r3 import Reflection
from groupwise.methods.selective_buffer import SelectiveBuffer
from groupwise.parts.algorithm import Algorithm
from groupwise.rollout import Flat, Hinted, TopUp
from groupwise.store.journal import Update
from groupwise.system.errors import TrainingError
from groupwise.training.collect.collect import UpdateRollouts, collect_update
from groupwise.training.evaluation.evaluate import evaluate_run
from groupwise.training.loop import train
from groupwise.training.open_run import open_run
from groupwise.training.run import Run
from groupwise.training.samples import credit_batch, make_samples
from tests.unit.learner.learners import gradient, learner, logps, single_steps, tiny
from tests.unit.training.rescued_runs import open_small_run, train_small_run
from tests.unit.training.runs import small_config

R3 = methods.r3(tau=0.9)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run that has replayed and reflected."""
    return train_small_run(tmp_path_factory.mktemp("rescued"), R3, updates=8)


def test_a_group_is_untouched_or_has_all_its_replayed_members(run: Run) -> None:
    """Replayed are: successes where all failed, failures where all succeeded; nobody where the group has both."""
    num_replayed = 0
    for number in run.journal.update_numbers():
        rows = list(run.journal.trajectories(number))
        replayed = run.journal.past_rollouts.list_replayed(number)
        num_replayed += len(replayed)
        for task in {row["task"] for row in rows}:
            own = {row["rollout"]: row["success"] for row in rows if row["task"] == task}
            joined = [one for one in replayed if one["task"] == task]
            assert [one["rollout"] for one in joined] == list(range(max(own) + 1, max(own) + 1 + len(joined)))
            assert len(joined) == 0 or len(set(own.values())) == 1
            for one in joined:
                assert one["from_number"] < number
                (source,) = [
                    row
                    for row in run.journal.trajectories(one["from_number"])
                    if (row["task"], row["rollout"]) == (task, one["from_rollout"])
                ]
                assert source["success"] not in own.values()
                assert any(one["credit"])
    assert num_replayed > 2


def test_every_update_says_what_became_of_its_groups(run: Run) -> None:
    replayed = dict(run.journal.curve("replay/rollouts"))
    for number in run.journal.update_numbers():
        assert replayed.get(number, 0) == len(run.journal.past_rollouts.list_replayed(number))
    assert max(value for _, value in run.journal.curve("advantage/groups_rescued")) > 0
    assert run.journal.curve("hint/groups")


def test_groups_that_nothing_was_done_for_are_not_rescued(tmp_path: Path) -> None:
    """Under HGPO equal scores may have credit by their lengths alone: that is no rescue."""
    run = train_small_run(tmp_path, methods.hgpo(), updates=3, first=2)
    assert {value for _, value in run.journal.curve("advantage/groups_rescued")} == {0.0}


def test_replay_beside_a_plan_that_leaves_even_groups_out_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="top_up drops zero-variance groups"):
        open_small_run(tmp_path, methods.r3(), plan=TopUp())
    with pytest.raises(ConfigError, match="top_up drops zero-variance groups"):
        open_small_run(tmp_path, methods.r3(with_reflection=False), plan=Hinted(plan=TopUp(), hint=Reflection()))


def test_rollouts_with_hint_form_their_own_groups_and_hold_it_in_their_prompts(run: Run) -> None:
    rows = [row for number in run.journal.update_numbers() for row in run.journal.trajectories(number)]
    hinted_rows = [row for row in rows if row["origin"] == "reflected"]
    unhinted = [row for row in rows if row["origin"] == "fresh"]
    assert hinted_rows
    assert {row["task"].partition("~")[0] for row in hinted_rows} <= {row["task"] for row in unhinted}
    assert all("~" in row["task"] for row in hinted_rows)
    said = {row["task"]: run.prompter.text(row["steps"][0]["prompt_ids"]) for row in rows}
    for task, text in said.items():
        assert ("an earlier answer to the task below was wrong" in text) == ("~" in task)
        assert "<unk>" not in text


class Observer:
    """A curriculum that notes what it is told."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self.tasks, self.seen = tasks, list[Trajectory]()

    def next(self, num: int) -> list[Task]:
        return list(self.tasks[:num])

    def observe(self, trajectories: Sequence[Trajectory]) -> None:
        self.seen += trajectories

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


def test_neither_replayed_nor_hinted_rollouts_reach_curricula_success_or_the_record(tmp_path: Path) -> None:
    run = open_small_run(tmp_path, R3, updates=6)
    observer = Observer(run.tasks)
    train(replace(run, curriculum=observer))
    rows = {number: list(run.journal.trajectories(number)) for number in run.journal.update_numbers()}
    every = [row for update in rows.values() for row in update]
    assert {row["origin"] for row in every} == {"fresh", "reflected"}, "what is replayed is not written again"
    assert run.journal.curve("replay/rollouts")
    assert {one.origin for one in observer.seen} == {Origin.FRESH}
    assert len(observer.seen) == 6 * 2 * 3
    success = dict(run.journal.curve("rollout/success"))
    for number, update in rows.items():
        fresh = [row["success"] for row in update if row["origin"] == "fresh"]
        assert success[number] == pytest.approx(sum(fresh) / len(fresh))
    for task in run.tasks[:2]:
        scores = [row["success"] for row in every if row["task"] == task.id]
        assert run.journal.past_rollouts.mean_score(task.id, max_rollouts=999) == pytest.approx(
            sum(scores) / len(scores)
        )


def test_an_evaluation_never_shows_hint(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    generate = TransformersEngine.generate

    def listen(self: TransformersEngine, requests: Sequence[Request]) -> list[Any]:
        shown.extend(run.prompter.text(request.prompt_ids) for request in requests)
        return generate(self, requests)

    monkeypatch.setattr(TransformersEngine, "generate", listen)
    evaluate_run(run, write=False)
    assert len(shown) == 6
    assert not any("earlier" in text for text in shown)
    collect_update(run, 9)
    assert any("earlier" in text for text in shown), "the next update does show it"


def test_with_an_empty_history_the_weights_are_those_of_the_base_to_the_bit(tmp_path: Path) -> None:
    """Each task comes once, so that there is nothing to replay and nothing to reflect on."""
    base, rescued = methods.r3_grpo_ablation(), methods.r3(with_ranking=False)
    settings = open_small_run(tmp_path / "words", rescued).config
    model, tokenizer = settings.model.open(words=settings.words(), seed=0)

    def weights(name: str, algorithm: Algorithm, updates: int) -> str:
        settings = {"updates": updates, "first": 0, "rate": 1e-2, "model": (deepcopy(model), tokenizer)}
        run = train_small_run(tmp_path / name, algorithm, **settings)
        assert run.journal.curve("replay/rollouts") == run.journal.curve("hint/groups") == []
        return hash_weights(run.learner.weights())

    trained_weights = weights("r3", rescued, 1)
    assert trained_weights == weights("base", base, 1)
    assert trained_weights != weights("start", base, 0), "it did learn"


def test_store_load_and_loss_equal_the_loss_in_memory(run: Run) -> None:
    """What is read back trains as what was sampled: the same samples, loss and gradient."""
    past_rollouts = run.journal.past_rollouts
    fresh = [without_shaping(one) for one in collect_update(run, 9).chosen if one.origin is Origin.FRESH]
    credit = [[0.0] * len(one.steps) for one in fresh]
    run.journal.write(Update(number=9, version=9, metrics={}, trajectories=fresh, credit=credit))
    try:
        past = [
            one for task in run.tasks[:2] for one in past_rollouts.recent(task.id, max_rollouts=99) if one.number == 9
        ]
        by_key = {(one.task, one.rollout): past_rollouts.read(one) for one in past}
    finally:
        run.journal.forget_after(8)
    read = [by_key[one.task.id, one.rollout] for one in fresh]
    memory, disk = (make_samples(credit_batch(methods.r3(), group, version=8)) for group in (fresh, read))
    assert disk == memory
    results = []
    for samples in (memory, disk):
        samples = [replace(one, advantage=1.0 - i, off_policy=True) for i, one in enumerate(samples)]
        model, _ = run.config.model.open(words=run.config.words(), seed=0)
        results.append(gradient(learner(model, methods.dr_grpo().loss), samples))
    assert results[0][0] == results[1][0]
    assert torch.equal(results[0][1], results[1][1])
    assert results[0][1].abs().max() > 0


def without_shaping(one: Trajectory) -> Trajectory:
    return replace(one, steps=tuple(replace(step, shaped=0.0) for step in one.steps))


@pytest.mark.parametrize("off_policy", [True, False])
def test_replayed_tokens_are_measured_by_the_log_probs_they_were_sampled_with(off_policy: bool) -> None:
    """With old="learner": two tokens of stored log-prob 0.1 below today's make a ratio of e^0.1; others have 1."""
    model = tiny()[0]
    sample = replace(single_steps(1.0)[0], off_policy=off_policy)
    now = [float(value) for value in logps(model, [sample])]
    exact = replace(sample, logp_behaviour=tuple(now))
    older = replace(sample, logp_behaviour=tuple(value - 0.1 for value in now))
    loss = methods.dapo(low=0.2, high=0.2).loss
    (loss_now, grad_now), (loss_older, grad_older) = (
        gradient(learner(tiny()[0], loss, max_grad_norm=1e9), [one]) for one in (exact, older)
    )
    ratio = 1.1051709 if off_policy else 1.0
    assert loss_now == pytest.approx(-1.0, abs=1e-5)
    assert loss_older == pytest.approx(-ratio, abs=1e-5)
    assert grad_older.tolist() == pytest.approx((ratio * grad_now).tolist(), abs=1e-5)


def test_an_rollout_that_the_policy_has_left_behind_is_not_replayed(tmp_path: Path) -> None:
    near = methods.r3(with_reflection=False)
    assert near.replay is not None
    far = near.model_copy(update={"replay": near.replay.model_copy(update={"max_log_ratio": 1e-9})})  # type: ignore[attr-defined]
    run = train_small_run(tmp_path, far, updates=6, rate=1e-2)
    left_out = [value for _, value in run.journal.curve("replay/left_out")]
    assert max(left_out) >= 1
    assert [
        one for number in run.journal.update_numbers() for one in run.journal.past_rollouts.list_replayed(number)
    ] == []


def test_the_buffer_trains_on_the_credit_that_an_rollout_had(tmp_path: Path) -> None:
    run = train_small_run(
        tmp_path, methods.r3_grpo_ablation().model_copy(update={"replay": SelectiveBuffer()}), updates=8
    )
    replayed = [
        one for number in run.journal.update_numbers() for one in run.journal.past_rollouts.list_replayed(number)
    ]
    assert replayed
    for one in replayed:
        (source,) = [
            row
            for row in run.journal.trajectories(one["from_number"])
            if (row["task"], row["rollout"]) == (one["from_task"], one["from_rollout"])
        ]
        assert one["credit"] == source["credit"]


def list_solved_with_hint(rollouts: UpdateRollouts) -> list[Trajectory]:
    return [one for one in rollouts.chosen if one.origin is Origin.REFLECTED and one.scores["success"]]


def test_successes_with_hint_may_join_the_unhinted_group_as_if_they_had_none(tmp_path: Path) -> None:
    asked = methods.r3(with_replay=False).model_copy(update={"hint": Reflection(tau=1.1, to_unhinted_prompt=True)})
    run = train_small_run(tmp_path, asked, updates=5)
    rollouts = collect_update(run, 6)
    hinted = [one for one in rollouts.chosen if one.origin is Origin.HINTED]
    assert len(hinted) == len(list_solved_with_hint(rollouts)) > 0
    for one in hinted:
        (source,) = [each for each in rollouts.chosen if each.id == one.parent]
        own = [each for each in rollouts.chosen if each.task.id == one.task.id and each.origin is Origin.FRESH]
        assert one.task.id == source.task.id.partition("~")[0]
        assert one.off_policy
        assert one.rollout > max(each.rollout for each in own)
        assert one.steps[0].prompt_ids == own[0].steps[0].prompt_ids
        assert one.steps[0].logp_behaviour == source.steps[0].logp_behaviour
    assert not any(one.origin is Origin.HINTED for one in rollouts.survivors)
    train_more = run.journal.past_rollouts.recent(run.tasks[0].id, max_rollouts=99)
    assert not any(one.origin == "hinted" for one in train_more)


def test_a_task_that_comes_again_in_a_later_round_gets_hint_with_further_rollouts(tmp_path: Path) -> None:
    """One task, several rounds: it is one group, and no rollout is made twice."""
    hinted = Reflection(tau=1.1, to_unhinted_prompt=True)
    asked = methods.r3(with_replay=False).model_copy(update={"hint": hinted})
    run = train_small_run(tmp_path, asked, updates=4, first=1, plan=TopUp(rounds=4), group_size=2)
    largest = 0
    for number in range(5, 13):
        rollouts = collect_update(run, number)
        ids = [one.id for one in rollouts.played]
        assert len(ids) == len(set(ids))
        members = [(one.task.id, one.rollout) for one in rollouts.chosen]
        assert len(members) == len(set(members))
        largest = max(largest, len(rollouts.survivors))
    assert largest > 4, "there were several rounds"


def test_hint_of_the_algorithm_and_a_hinted_plan_are_one_thing(tmp_path: Path) -> None:
    """The method's field and the plan of that name ask for the same rollouts, and write the same journal."""
    without = methods.r3(tau=0.9, with_reflection=False)
    assert R3.hint is not None
    by_plan = train_small_run(tmp_path / "plan", without, plan=Hinted(plan=Flat(), hint=R3.hint))
    by_algorithm = train_small_run(tmp_path / "algorithm", R3)
    assert by_plan.journal.digest() == by_algorithm.journal.digest()
    assert hash_weights(by_plan.learner.weights()) == hash_weights(by_algorithm.learner.weights())
    assert by_plan.journal.curve("hint/groups")


def test_a_run_whose_index_disagrees_is_not_resumed(tmp_path: Path) -> None:
    replaying = methods.r3(with_reflection=False)
    train_small_run(tmp_path, replaying, updates=2).journal.close()
    with sqlite3.connect(tmp_path / "journal.sqlite") as database:
        database.execute("DELETE FROM past_rollouts WHERE rollout = 1 AND number = 1")
    with pytest.raises(TrainingError, match=r"does not lead to checkpoint 0002 \(update 1 is not as it was written\)"):
        train(open_small_run(tmp_path, replaying, updates=3), resume=True)


class Restless(Identity):
    """Gives its tasks another name each time it is asked."""

    def task_set(self, split: str) -> tuple[Task, ...]:
        global asked
        asked += 1
        return tuple(replace(task, id=f"{task.id}-{asked}") for task in super().task_set(split))


asked = 0


@pytest.mark.more
def test_tasks_whose_ids_do_not_last_are_refused_where_the_past_is_read(tmp_path: Path) -> None:
    config = small_config().model_copy(update={"env": Restless(num_words=4, length=1), "algorithm": R3})
    with pytest.raises(ConfigError, match="Derive ids from the content") as caught:
        open_run(config, tmp_path)
    first = Identity(num_words=4, length=1).task_set("train")[0].id
    assert str(caught.value).startswith(f"env: the same training task has the id '{first}-1' at first and '{first}-")
    open_run(config.model_copy(update={"algorithm": methods.grpo()}), tmp_path)
