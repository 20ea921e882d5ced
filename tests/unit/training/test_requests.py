"""What a plan asks for is what is played: forced beginnings, temperatures, hint, and whom rollouts join."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from groupwise import ConfigError, Origin, Task, Trajectory, methods
from groupwise.engines.engine import Request
from groupwise.rollout.plans import PlanTools, Played, RolloutRequest
from groupwise.store.journal import Update
from groupwise.training.collect.collect import MAX_ROUNDS, UpdateRollouts, collect_update
from groupwise.training.loop import train
from groupwise.training.run import Run
from groupwise.training.samples import credit_batch, make_samples
from tests.unit.training.planned_runs import ask_hinted, once, open_planned_run

HINT = "try harder"


def word(tools: PlanTools) -> tuple[int, ...]:
    """One token to force."""
    return tools.encode("try")


def special(rollouts: UpdateRollouts) -> list[Trajectory]:
    return [trajectory for trajectory in rollouts.chosen if trajectory.origin is not Origin.FRESH]


def list_unhinted(rollouts: UpdateRollouts) -> list[Trajectory]:
    return [trajectory for trajectory in rollouts.chosen if trajectory.origin is Origin.FRESH]


def samples_of(rollouts: UpdateRollouts) -> dict[str, Any]:
    """The sample of each rollout's first step, by the rollout's id."""
    credit = credit_batch(methods.dr_grpo(), rollouts.chosen, version=0)
    first = {sample.trajectory: sample for sample in reversed(make_samples(credit))}
    return {trajectory.id: first[number] for number, trajectory in enumerate(credit.trajectories)}


def score(run: Run, trajectory: Trajectory, temperature: float = 1.0) -> tuple[float, ...]:
    step = trajectory.steps[0]
    return run.engine.score([(step.prompt_ids, step.response_ids)], temperature=temperature)[0]


def test_forced_tokens_begin_the_response_with_the_policys_log_probs_and_do_not_train(tmp_path: Path) -> None:
    run = open_planned_run(tmp_path, once(ask_hinted(forced=word)))
    forced, rollouts = run.prompter.encode("try"), collect_update(run, 1)
    assert len(forced) == 1
    assert len(special(rollouts)) == 2
    for trajectory in special(rollouts):
        step = trajectory.steps[0]
        assert step.response_ids[:1] == forced
        assert step.forced == 1
        assert 2 <= len(step.response_ids) <= 3
        assert step.logp_behaviour == pytest.approx(score(run, trajectory), abs=1e-5)
        assert step.logp_behaviour[0] != 0.0
        assert step.entropy[0] == 0.0, "nobody drew it"
        sample = samples_of(rollouts)[trajectory.id]
        assert sample.prompt_ids == step.prompt_ids + forced
        assert sample.response_ids == step.response_ids[1:]
        assert sample.logp_behaviour == step.logp_behaviour[1:]
        assert sample.num_trained == len(step.response_ids) - 1
        assert trajectory.origin is Origin.REFLECTED
        assert not trajectory.off_policy


def test_what_follows_is_sampled_as_after_a_prompt_that_ends_with_the_forced_tokens(tmp_path: Path) -> None:
    run = open_planned_run(tmp_path, once(ask_hinted(forced=word)))
    asked: list[Request] = []
    generate = run.engine.generate
    run.engine.generate = lambda requests: asked.extend(requests) or generate(requests)  # type: ignore[assignment,func-returns-value]
    rollouts, forced = collect_update(run, 1), run.prompter.encode("try")
    step = special(rollouts)[0].steps[0]
    (request,) = [each for each in asked if each.prompt_ids == step.prompt_ids + forced][:1]
    assert request.max_tokens == 2, "the forced token counts as one of three"
    (again,) = generate([request])
    assert step.response_ids == forced + again.response_ids


def test_forced_tokens_train_where_that_is_asked_for(tmp_path: Path) -> None:
    run = open_planned_run(tmp_path, once(ask_hinted(forced=word, trains_forced=True)))
    rollouts = collect_update(run, 1)
    for trajectory in special(rollouts):
        sample = samples_of(rollouts)[trajectory.id]
        assert sample.num_trained == len(trajectory.steps[0].response_ids)
        assert sample.off_policy
        assert trajectory.origin is Origin.HINTED


def test_forced_tokens_stay_known_in_the_journal_and_in_past_rollouts(tmp_path: Path) -> None:
    run = open_planned_run(tmp_path, once(ask_hinted(forced=word, joins="unhinted", why="a better start")))
    train(run)
    rows = [row for row in run.journal.trajectories(1) if row["origin"] == "hinted"]
    assert [row["steps"][0]["forced"] for row in rows] == [1, 1]
    assert "forced" not in next(row for row in run.journal.trajectories(1) if row["origin"] == "fresh")["steps"][0]
    past = run.journal.past_rollouts.find(rows[0]["task"], number=1, rollout=rows[0]["rollout"])
    assert run.journal.past_rollouts.read(past).steps[0].forced == 1
    words = run.journal.request_words(1)
    assert words == {(row["task"], row["rollout"]): "a better start; 1 forced token; joins unhinted" for row in rows}


def test_an_rollout_at_another_temperature_is_measured_by_the_distribution_that_sampled_it(tmp_path: Path) -> None:
    run = open_planned_run(tmp_path, once(ask_hinted(temperature=2.5, joins="unhinted", forced=word)))
    rollouts = collect_update(run, 1)
    for trajectory in special(rollouts):
        step = trajectory.steps[0]
        assert step.logp_behaviour == pytest.approx(score(run, trajectory, 2.5), abs=1e-5)
        assert step.logp_behaviour != pytest.approx(score(run, trajectory, 1.0), abs=1e-3)
        assert samples_of(rollouts)[trajectory.id].off_policy, "its ratio is taken against what it was sampled with"
    for trajectory in list_unhinted(rollouts):
        assert trajectory.steps[0].logp_behaviour == pytest.approx(score(run, trajectory, 1.0), abs=1e-5)
        assert not trajectory.off_policy


def test_hint_stands_in_the_prompt_and_its_rollouts_are_compared_with_one_another(tmp_path: Path) -> None:
    run = open_planned_run(tmp_path, once(ask_hinted(hint_text=HINT)))
    rollouts = collect_update(run, 1)
    task = run.tasks[0].id
    assert {trajectory.task.id for trajectory in list_unhinted(rollouts)} == {task}
    (own,) = {trajectory.task.id for trajectory in special(rollouts)}
    assert own.startswith(f"{task}~")
    assert [trajectory.rollout for trajectory in special(rollouts)] == [0, 1]
    for trajectory in special(rollouts):
        assert HINT in run.prompter.text(trajectory.steps[0].prompt_ids)
        assert trajectory.steps[0].unhinted_prompt_ids == list_unhinted(rollouts)[0].steps[0].prompt_ids
    assert [trajectory.origin for trajectory in rollouts.survivors] == [Origin.FRESH] * 2


@pytest.mark.parametrize("joins", ["own", "unhinted"])
def test_an_unhinted_loss_context_trains_without_the_hint(tmp_path: Path, joins: str) -> None:
    run = open_planned_run(tmp_path, once(ask_hinted(hint_text=HINT, joins=joins, loss_context="unhinted")))
    rollouts = collect_update(run, 1)
    for trajectory in special(rollouts):
        assert trajectory.steps[0].prompt_ids == list_unhinted(rollouts)[0].steps[0].prompt_ids
        assert trajectory.off_policy
        assert trajectory.origin is Origin.HINTED


def test_rollouts_that_join_are_numbered_after_the_unhinted_and_compared_with_them(tmp_path: Path) -> None:
    run = open_planned_run(tmp_path, once(ask_hinted(hint_text=HINT, joins="unhinted")))
    rollouts = collect_update(run, 1)
    assert [(trajectory.task.id, trajectory.rollout) for trajectory in rollouts.chosen] == [
        (run.tasks[0].id, number) for number in range(4)
    ]
    assert [trajectory.origin.value for trajectory in rollouts.chosen] == ["fresh", "fresh", "hinted", "hinted"]
    assert rollouts.set_aside == []


def pay(run: Run, monkeypatch: pytest.MonkeyPatch, *scores: float) -> None:
    """Make the rollouts of an update earn these numbers, in the order in which they are played."""
    remaining = iter(scores)

    def earn(trajectory: Trajectory, rewards: object, **_: object) -> Trajectory:
        amount = next(remaining)
        steps = (replace(trajectory.steps[0], reward=amount), *trajectory.steps[1:])
        return replace(trajectory, steps=steps, scores={"return": amount, "success": amount})

    monkeypatch.setattr("groupwise.training.collect.collect.score_trajectory", earn)


def test_a_better_rollout_takes_the_place_of_the_lowest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = open_planned_run(tmp_path, once(ask_hinted(hint_text=HINT, joins="replaces_one", rollouts=3)))
    pay(run, monkeypatch, 0.0, 0.0, 1.0, 0.0, 0.5)
    rollouts = collect_update(run, 1)
    assert [trajectory.rollout for trajectory in rollouts.chosen] == [2, 4]
    assert [(each.trajectory.rollout, each.by) for each in rollouts.set_aside] == [
        (1, "the plan: rollout 2 took its place"),
        (3, "the plan: no unhinted rollout scored lower"),
        (0, "the plan: rollout 4 took its place"),
    ]


def test_hinted_rollouts_take_the_place_of_the_whole_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = open_planned_run(tmp_path, once(ask_hinted(hint_text=HINT, joins="replaces_group")))
    pay(run, monkeypatch, 0.0, 0.0, 1.0, 0.0)
    rollouts = collect_update(run, 1)
    assert [trajectory.rollout for trajectory in rollouts.chosen] == [2, 3]
    assert {each.trajectory.rollout for each in rollouts.set_aside} == {0, 1}
    assert len(rollouts.survivors) == 2, "these still speak for the policy"


def test_hinted_rollouts_that_joined_a_group_before_keep_their_place(tmp_path: Path) -> None:
    joins = [ask_hinted(hint_text=HINT, joins="unhinted"), ask_hinted(hint_text=HINT, joins="replaces_group")]
    rollouts = collect_update(open_planned_run(tmp_path, once(*joins)), 1)
    assert [trajectory.rollout for trajectory in rollouts.chosen] == [2, 3, 4, 5]
    assert [each.trajectory.rollout for each in rollouts.set_aside] == [0, 1]


def test_replaced_rollouts_are_kept_in_the_journal_and_go_back_with_it(tmp_path: Path) -> None:
    run = open_planned_run(tmp_path, once(ask_hinted(hint_text=HINT, joins="replaces_group")))
    train(run)
    (first, second) = run.journal.set_aside(2)
    assert (first["rollout"], second["rollout"]) == (0, 1)
    assert first["set_aside_by"] == "the plan: the hinted rollouts from 2 on took its place"
    assert first["steps"][0]["response_ids"]
    assert run.journal.check_digest_chain().fault is None
    run.journal.forget_after(1)
    assert run.journal.set_aside(2) == []
    assert len(run.journal.set_aside(1)) == 2


def test_a_changed_row_of_a_set_aside_rollout_breaks_the_chain(tmp_path: Path) -> None:
    run = open_planned_run(tmp_path, once(ask_hinted(hint_text=HINT, joins="replaces_group")))
    train(run)
    with run.journal._database as database:
        database.execute("UPDATE set_aside SET outcome = 7.0 WHERE number = 2")
    assert run.journal.check_digest_chain().fault == "update 2 is not as it was written"


FOREIGN = Task(id="elsewhere")
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"task": FOREIGN}, "is for a task that the training task set does not have; take tasks from tools.fresh or"),
    ({"rollouts": 0}, "has rollouts=0; ask for at least 1, or leave the request out"),
    ({"rollouts": True}, "has rollouts=True; ask for at least 1"),
    ({"hint_text": None}, "has a hint_text or a why that is not text"),
    ({"hint_text": HINT, "joins": "other"}, "has joins='other' and loss_context='given'; joins is one of own, "),
    ({"joins": "unhinted"}, "has joins='unhinted', but nothing that guides it; leave joins out"),
    ({"loss_context": "unhinted"}, "has loss_context='unhinted' and no hint_text; leave loss_context out"),
    ({"trains_forced": True}, "has trains_forced and nothing forced; leave trains_forced out"),
    ({"forced": ("try",)}, "has forced=('try',); give token ids, as tools.encode makes them of a text"),
    ({"forced": [1]}, "has forced=[1]; give a tuple of token ids, as tools.encode makes them of a text"),
    ({"forced": (10**6,)}, "has the forced token 1000000, but the model knows ids below "),
    ({"temperature": "hot"}, "has temperature='hot'; give a number above 0, or none for rollout.temperature"),
    ({"hint_text": HINT, "parent": 3}, "has parent=3; give the id of a trajectory, as text, or none"),
    ({"forced": (1, 1, 1)}, "forces 3 tokens, and rollout.max_tokens is 3, so that none is left to sample; force"),
    ({"temperature": 0.0}, "has temperature=0.0; give a number above 0, or none for rollout.temperature"),
    ({"temperature": float("nan")}, "has temperature=nan; give a number above 0"),
]


@pytest.mark.parametrize(("fields", "said"), WRONG, ids=lambda value: str(value)[:40])
def test_a_request_that_cannot_be_played_is_refused_in_a_sentence(
    tmp_path: Path, fields: dict[str, Any], said: str
) -> None:
    run = open_planned_run(tmp_path, once(ask_hinted(**fields)))
    with pytest.raises(ConfigError) as raised:
        collect_update(run, 1)
    task = fields.get("task", run.tasks[0]).id
    plan = "tests.unit.training.planned_runs:open_planned_run.<locals>.Mine"
    assert str(raised.value).startswith(f"the plan {plan}: its request for task {task!r} {said}")


def test_a_task_as_text_is_refused_in_a_sentence(tmp_path: Path) -> None:
    run = open_planned_run(tmp_path, once(lambda played, tools: RolloutRequest(task="walk", rollouts=2)))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="its request has task='walk'; give a Task, as tools"):
        collect_update(run, 1)


def test_the_token_that_ends_a_response_is_not_forced(tmp_path: Path) -> None:
    run = open_planned_run(tmp_path, once(ask_hinted(forced=lambda tools: (END[0],))))
    END[:] = [run.prompter.frame.end_id]
    with pytest.raises(ConfigError, match=r"forces the token \d+, which ends a response"):
        collect_update(run, 1)


END: list[int] = []


def test_a_group_that_does_not_exist_cannot_be_joined(tmp_path: Path) -> None:
    run = open_planned_run(
        tmp_path, once(ask_hinted(task=lambda tools: tools.tasks[1], hint_text=HINT, joins="replaces_one"))
    )
    with pytest.raises(ConfigError, match="joins='replaces_one', but the update has no unhinted rollouts at the task"):
        collect_update(run, 1)


def everything(played: Played, tools: PlanTools) -> list[RolloutRequest]:
    return [RolloutRequest(task=tools.tasks[0], rollouts=1)]


def nothing(played: Played, tools: PlanTools) -> list[RolloutRequest]:
    return []


def only_hinted(played: Played, tools: PlanTools) -> list[RolloutRequest]:
    return [] if played.rounds else [RolloutRequest(task=tools.tasks[0], rollouts=2, hint_text=HINT)]


def too_many(played: Played, tools: PlanTools) -> list[RolloutRequest]:
    return [RolloutRequest(task=task, rollouts=1) for task in tools.fresh(-1)]


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (nothing, "asked for nothing in the first round; ask for at least one rollout"),
        (everything, f"still asked for more after {MAX_ROUNDS} rounds; return [] to end them"),
        (only_hinted, "asked for no rollout that shows what the policy can do alone"),
        (too_many, "the plan called tools.fresh(-1); give a whole number of tasks, 0 or more"),
    ],
)
def test_a_plan_that_does_not_make_an_update_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ask: Callable[..., Any], said: str
) -> None:
    monkeypatch.setattr("groupwise.training.collect.collect.MAX_ROUNDS", 3)
    with pytest.raises(ConfigError) as raised:
        collect_update(open_planned_run(tmp_path, ask), 1)
    assert said.replace(str(MAX_ROUNDS), "3") in str(raised.value)


def test_a_request_that_stands_twice_gets_further_rollouts(tmp_path: Path) -> None:
    request: list[RolloutRequest] = []

    def twice(played: Played, tools: PlanTools) -> list[RolloutRequest]:
        request.append(RolloutRequest(task=tools.tasks[0], rollouts=2))
        return [] if played.rounds else [request[0], request[0]]

    rollouts = collect_update(open_planned_run(tmp_path, twice), 1)
    assert [trajectory.rollout for trajectory in rollouts.chosen] == [0, 1, 2, 3]


def test_a_plan_sees_what_its_rounds_brought(tmp_path: Path) -> None:
    seen: list[list[int]] = []

    def ask(played: Played, tools: PlanTools) -> list[RolloutRequest]:
        seen.append([len(group) for turn in played.rounds for group in (*turn.groups, *turn.hinted, *turn.joining)])
        if len(played.rounds) == 2:
            return []
        joins: Any = "unhinted" if played.rounds else "own"
        plain = [] if played.rounds else [RolloutRequest(task=tools.tasks[0], rollouts=2)]
        return [*plain, RolloutRequest(task=tools.tasks[0], rollouts=3, hint_text=HINT, joins=joins)]

    rollouts = collect_update(open_planned_run(tmp_path, ask), 1)
    assert seen == [[], [2, 3], [2, 3, 3]]
    assert len(rollouts.chosen) == 8


def test_the_journal_writes_no_row_that_was_not_asked_for(tmp_path: Path) -> None:
    run = open_planned_run(tmp_path, once(ask_hinted(hint_text=HINT)))
    rollouts = collect_update(run, 1)
    credit = [[0.0] * len(each.steps) for each in rollouts.chosen]
    run.journal.write(Update(number=1, version=1, metrics={}, trajectories=rollouts.chosen, credit=credit))
    assert rollouts.request_words == {}
    assert run.journal.request_words(1) == {}
