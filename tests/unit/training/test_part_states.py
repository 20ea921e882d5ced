"""What the parts of a run remember: seeded by path, told once an update, saved by path, and refused in one sentence."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

pytest.importorskip("torch")

from groupwise import Algorithm, ConfigError, Part, StepTable, Task, methods
from groupwise.credit import AbovePrior, ByTask, ColumnSignal, NoBaseline, NoScale, Relative
from groupwise.data.seeds import seed_of
from groupwise.data.segments import BoolArray
from groupwise.report.derived_credit import DerivedCredit, derive_credit, read_replayed_rollouts
from groupwise.rollout import Flat, TopUp
from groupwise.store.run_folder import RunPaths
from groupwise.system.errors import TrainingError
from groupwise.training.collect.collect import play_rounds, prepare_update
from groupwise.training.config.run_config import RolloutConfig, RunConfig
from groupwise.training.loop import train
from groupwise.training.open_run import open_run
from groupwise.training.part_states import PartStates
from groupwise.training.run import Run
from tests.unit.parts.remembering import Count, CountState
from tests.unit.training.runs import small_config

TASKS = [Task(id="t1"), Task(id="t2")]
CHECKPOINT = Path("checkpoints/0002")
BEGAN_WITH = (
    "continue with the settings that the run began with (config.toml has them) and with parts of your own as they were "
    "then, or start a new run in another folder"
)
COUNT = "tests.unit.parts.remembering:Count"
PATH = "algorithm.advantage.of"


class CountFilter(Part, slot="filter"):
    """Keeps every step, and counts."""

    column: str = "filter_count"
    """What the table calls its count."""

    def __call__(self, table: StepTable) -> BoolArray:
        return np.asarray(table.column(self.column) >= 0)

    def start(self, *, seed: int) -> CountState:
        """Begin at 0."""
        return CountState(self.column, seed)


def config(signal: Part, *filters: Part, updates: int = 2, **changes: Any) -> RunConfig:
    """A small run whose credit is a signal, as it is."""
    small = small_config(updates=updates)
    advantage = Relative(by=ByTask(), of=signal, baseline=NoBaseline(), scale=NoScale(), alone="raw")
    algorithm = Algorithm(advantage=advantage, filters=filters, loss=small.algorithm.loss)
    return small.model_copy(update={"algorithm": algorithm, **changes})


def start(signal: Part, *filters: Part) -> PartStates:
    return PartStates.start(config(signal, *filters), seed=7, tasks=TASKS)


def count_states(states: PartStates) -> list[CountState]:
    return [part.state for part in states.parts]  # type: ignore[misc]


def test_each_part_is_started_with_the_seed_of_its_path() -> None:
    states = start(Count(), CountFilter())
    assert [state.seed for state in count_states(states)] == [
        seed_of(7, "part", "algorithm.advantage.of"),
        seed_of(7, "part", "algorithm.filters.0"),
    ]
    assert len(start(AbovePrior()).parts) == 1
    assert not PartStates.start(small_config(), seed=7, tasks=TASKS).parts


def test_what_start_gives_must_be_a_state() -> None:
    class Hasty(Part, slot="signal"):
        def __call__(self, table: object) -> None: ...

        def start(self, *, seed: int) -> Any:
            return {"seed": seed}

    with pytest.raises(ConfigError) as error:
        start(Hasty())
    assert str(error.value) == (
        f"{PATH} ({__name__}:{Hasty.__qualname__}): start returned a dict of 1, which has no columns; expected an "
        "object with columns, observe, state_dict and load_state_dict"
    )


def test_names_that_collide_are_refused_before_a_model_loads(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        open_run(config(Count(), CountFilter(column="count")), tmp_path)
    assert str(error.value) == (
        f"algorithm.filters.0 ({__name__}:CountFilter) and {PATH} ({COUNT}) both return the column 'count'; rename "
        "one of them"
    )
    taken = [
        "outcome",
        "age",
        "reward",
        "trains",
        "off_policy",
        "role",
        "version",
        "first_observation",
        "episode_return",
    ]
    for name in taken:
        with pytest.raises(ConfigError) as error:
            open_run(config(Count(column=name)), tmp_path)
        assert str(error.value) == (
            f"{PATH} ({COUNT}) returns the column {name!r}, which the table already has; rename it"
        )


def test_a_memory_that_is_no_json_is_refused_before_a_model_loads(tmp_path: Path) -> None:
    class Arrays(Count):
        def start(self, *, seed: int) -> CountState:
            state = CountState("count", seed)
            state.count = np.int64(0)  # type: ignore[assignment]
            return state

    with pytest.raises(
        ConfigError, match=r"^algorithm\.advantage\.of \(.*Arrays\): the result of state_dict holds a int64;"
    ):
        open_run(config(Arrays()), tmp_path)


class Trained:
    """A run of two updates whose signal and filter count."""

    def __init__(self, folder: Path, settings: RunConfig) -> None:
        self.run: Run = open_run(settings, folder)
        train(self.run)
        self.signal, *_ = count_states(self.run.part_states)


def test_parts_hear_of_an_update_once_with_its_rollouts_and_their_credit(tmp_path: Path) -> None:
    trained = Trained(tmp_path, config(Count(), CountFilter()))
    first, second = trained.signal.heard
    assert (first.number, second.number) == (1, 2)
    assert len(second.trajectories) == len(second.credit) == 16
    assert all(credit == (1.0,) for credit in second.credit), "each step's credit was the count"
    journal = trained.run.journal
    assert second.metrics["loss/total"] == dict(journal.curve("loss/total"))[2]
    assert not any(name.startswith(("seconds/", "speed/")) for name in second.metrics)
    assert [[state.state for state in journal.states_before(number)] for number in (1, 2)] == [
        [{"count": 0}, {"count": 0}],
        [{"count": 1}, {"count": 1}],
    ]


def test_an_rollout_that_the_plan_left_out_is_heard_of_without_credit(tmp_path: Path) -> None:
    rollout = RolloutConfig(max_tokens=1, group_size=2, plan=TopUp(rounds=3))
    [update] = Trained(tmp_path, config(Count(), updates=1, rollout=rollout)).signal.heard
    assert None in update.credit
    assert len(update.credit) == len(update.trajectories) > 4


class Probe(Part, slot="scorer"):
    """Writes a number onto every step."""

    @property
    def needs(self) -> frozenset[str]:
        return frozenset()

    def __call__(self, groups: Any, tools: Any, *, draw: Any) -> list[Any]:
        return [[[{"probe": 2.0} for _ in each.steps] for each in group] for group in groups]


def with_measure(settings: RunConfig) -> RunConfig:
    return settings.model_copy(
        update={"algorithm": settings.algorithm.model_copy(update={"scorers": (Probe(),), "shapers": (Bonus(),)})}
    )


class Bonus(Part, slot="shaper"):
    """Adds to every reward."""

    needs_entropy: ClassVar[bool] = False

    def __call__(self, group: Any) -> list[list[float]]:
        return [[0.5] * len(each.steps) for each in group]


def test_parts_hear_what_measures_found_and_not_what_shaping_added(tmp_path: Path) -> None:
    [update] = Trained(tmp_path, with_measure(config(Count(), updates=1))).signal.heard
    steps = [step for trajectory in update.trajectories for step in trajectory.steps]
    assert [step.info for step in steps] == [{"probe": 2.0}] * 16
    assert not any(step.shaped for step in steps)


@pytest.mark.parametrize(
    ("group_size", "plan"), [(4, Flat()), (2, TopUp(rounds=3))], ids=["all take part", "some do not"]
)
def test_a_prior_follows_what_a_measure_found(tmp_path: Path, group_size: int, plan: Part) -> None:
    rollout = RolloutConfig(max_tokens=1, group_size=group_size, plan=plan)
    settings = with_measure(
        config(AbovePrior(of=ColumnSignal(name="probe"), first_weight=0.0), updates=2, rollout=rollout)
    )
    run = open_run(settings, tmp_path)
    train(run)
    [before] = run.journal.states_before(2)
    assert {level for level, _ in before.state["tasks"].values()} == {2.0}


def test_replayed_rollouts_are_compared_with_what_is_remembered_now(tmp_path: Path) -> None:
    settings = config(AbovePrior(keep=0.5), updates=4)
    replays = settings.algorithm.model_copy(update={"replay": methods.build("r3").replay})
    run = open_run(settings.model_copy(update={"algorithm": replays}), tmp_path)
    train(run)
    numbers = [number for number in run.journal.update_numbers() if run.journal.past_rollouts.list_replayed(number)]
    assert numbers
    for number in numbers:
        states, replayed = run.journal.states_before(number), read_replayed_rollouts(run.journal, number)
        again = derive_credit(list(run.journal.trajectories(number)), replays, replayed, states)
        assert isinstance(again, DerivedCredit)
        assert len(again.rows) > 16
        priors = {row["task"]: states[0].columns["prior"][row["task"]] for row in again.rows}
        assert again.table.column("prior").tolist() == [priors[again.table.task_ids[t]] for t in again.table.task]


def test_the_journal_and_the_checkpoint_of_a_run_without_memory_have_nothing_new(tmp_path: Path) -> None:
    run = open_run(small_config(), tmp_path)
    train(run)
    assert run.journal.states_before(1) == []
    assert "parts" not in json.loads((tmp_path / "checkpoints" / "0001" / "state.json").read_text(encoding="utf-8"))


def test_state_and_columns_are_of_one_moment_where_updates_are_learnt_while_rollouts_play(tmp_path: Path) -> None:
    with open_run(config(Count()), tmp_path) as run:
        rounds = play_rounds(run, 1)
        (counting,) = count_states(run.part_states)
        counting.count = 3  # as if others were learnt meanwhile
        (before,) = prepare_update(run, rounds).states
    assert before.state == {"count": 3}
    assert {*before.columns["count"].values()} == {3.0}


def test_a_resumed_run_remembers(tmp_path: Path) -> None:
    Trained(tmp_path, config(AbovePrior(), updates=2)).run.journal.close()
    resumed = open_run(config(AbovePrior(), updates=3), tmp_path)
    train(resumed, resume=True)
    state = json.loads((tmp_path / "checkpoints" / "0002" / "state.json").read_text(encoding="utf-8"))
    [before] = resumed.journal.states_before(3)
    assert state["parts"] == {PATH: {"kind": "above_prior", "state": before.state}}
    assert len(before.state["tasks"]) == 2


def test_a_resumed_run_whose_settings_lack_the_part_is_refused(tmp_path: Path) -> None:
    Trained(tmp_path, config(AbovePrior(), updates=1)).run.journal.close()
    kept = RunPaths(tmp_path).config.read_bytes()
    without = config(ColumnSignal(name="reward"), updates=2)
    with pytest.raises(ConfigError) as error, open_run(without, tmp_path) as resumed:
        train(resumed, resume=True)
    assert str(error.value) == (
        f"{PATH}.kind cannot change in a resumed run: it was 'above_prior', is 'column' (6 more like it); "
        f"leave it as in {tmp_path}/config.toml, or begin another run in another folder"
    )
    assert RunPaths(tmp_path).config.read_bytes() == kept


def forget_how_to_remember(monkeypatch: pytest.MonkeyPatch) -> None:
    """Change the code of a part, as its author would between two sessions: its settings stay, its state goes."""
    monkeypatch.delattr(Count, "start")
    monkeypatch.setattr(Count, "__call__", lambda part, table: np.zeros(len(table.reward)))


@pytest.mark.parametrize("has_settings", [True, False], ids=["settings kept", "settings removed"])
def test_a_part_that_remembers_no_longer_is_refused_before_the_journal_forgets(
    has_settings: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = config(Count(), updates=2)
    Trained(tmp_path, settings).run.journal.close()
    RunPaths(tmp_path).latest.write_text("0001")
    if not has_settings:
        RunPaths(tmp_path).config.unlink()
    with monkeypatch.context() as changed:
        forget_how_to_remember(changed)
        with pytest.raises(TrainingError) as error, open_run(config(Count(), updates=4), tmp_path) as resumed:
            train(resumed, resume=True)
    assert str(error.value) == (
        f"checkpoint {tmp_path}/checkpoints/0001: it holds the state of {PATH} ({COUNT}), and this run has no "
        f"stateful part there; {BEGAN_WITH}"
    )
    with open_run(settings, tmp_path) as run:
        assert (run.journal.last_number(), run.journal.changes()) == (2, [])
        train(run, resume=True)
        assert run.journal.last_number() == 2


class Picky(CountState):
    """Takes up nothing, or something else."""

    def __init__(self, fault: str) -> None:
        super().__init__("count", 0)
        self.fault = fault

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if self.fault:
            raise KeyError(self.fault)


class PickyPart(Count):
    """A part whose memory cannot be taken up."""

    fault: str = ""
    """What it raises."""

    def start(self, *, seed: int) -> Picky:
        """Begin."""
        return Picky(self.fault)


ENTRY = {"kind": COUNT, "state": {"count": 3}}
HERE = f"checkpoint {CHECKPOINT}: "


@pytest.mark.parametrize(
    ("part", "saved", "words"),
    [
        (Count(), {}, f"it holds no state of {PATH} ({COUNT}); {BEGAN_WITH}"),
        (
            Count(),
            {PATH: ENTRY, "algorithm.filters.0": {"kind": "x", "state": {}}},
            "it holds the state of algorithm.filters.0 (x), and this run has no stateful part there; " + BEGAN_WITH,
        ),
        (
            Count(),
            {PATH: {"kind": "above_prior", "state": {"tasks": {}}}},
            f"it holds the state of {PATH} (above_prior), and this run has {COUNT} there; {BEGAN_WITH}",
        ),
        (Count(), {PATH: {"count": 3}}, f"its 'parts' are no states by path; {BEGAN_WITH}"),
        (Count(), [1], f"its 'parts' are no states by path; {BEGAN_WITH}"),
        (
            PickyPart(fault="gone"),
            {PATH: {"kind": f"{__name__}:PickyPart", "state": {"count": 3}}},
            f"{PATH} ({__name__}:PickyPart) cannot load its state ('gone'); {BEGAN_WITH}",
        ),
        (
            PickyPart(),
            {PATH: {"kind": f"{__name__}:PickyPart", "state": {"count": 3}}},
            f"{PATH} ({__name__}:PickyPart) has another state after load_state_dict than state_dict had written; "
            "see that the one loads all that the other gives",
        ),
    ],
    ids=["missing", "surplus", "another kind", "no entry", "no mapping", "cannot load", "loads something else"],
)
def test_a_memory_that_does_not_fit_is_refused_in_a_sentence(part: Part, saved: Any, words: str) -> None:
    with pytest.raises(TrainingError) as error:
        start(part).load_state_dict(saved, checkpoint=CHECKPOINT)
    assert str(error.value) == HERE + words


def test_what_fits_is_taken_up() -> None:
    states = start(Count())
    states.load_state_dict({PATH: ENTRY}, checkpoint=CHECKPOINT)
    assert states.state_dict() == {PATH: ENTRY}
    assert states.columns(TASKS) == {"count": {"t1": 3.0, "t2": 3.0}}
