"""After VGPO and COPO: the specification's numbers, oracles on random tables, what is explained and what is refused."""

from __future__ import annotations

import random
from typing import Any

import pytest

from groupwise import ConfigError, StepTable, methods
from groupwise.envs import Household
from groupwise.methods.copo import AnswerBlend, GlobalShare
from groupwise.system.errors import RecordError
from groupwise.training.config.checks import check_algorithm
from tests.oracles import homogeneous as oracle
from tests.oracles.rows import Row
from tests.unit.training.runs import small_config

NUM_TABLES = 150


def table_of(rows: list[Row]) -> StepTable:
    return StepTable.from_columns(**{name: [row[name] for row in rows] for name in rows[0]})


def rows_of(*tasks: tuple[list[float], list[Any]]) -> list[Row]:
    """One step a rollout: the returns and the answers of each task."""
    return [
        {"task": task, "rollout": rollout, "step": 0, "reward": reward, "answer": answer}
        for task, (rewards, answers) in enumerate(tasks)
        for rollout, (reward, answer) in enumerate(zip(rewards, answers, strict=True))
    ]


def credit(rows: list[Row], method: str = "after_vgpo", **options: Any) -> list[float]:
    return methods.build(method, **options).advantage(table_of(rows)).values.tolist()


MIXED = ([1.0, 1.0, 1.0, 1.0, 0.0, 0.0], ["12"] * 4 + ["7", "5"])
RIGHT, WRONG = ([1.0] * 6, ["12"] * 6), ([0.0] * 6, ["7"] * 6)
SCATTERED = ([1.0] + [0.0] * 5, list("abcdef"))


def test_a_share_of_the_return_stays_where_the_spread_vanishes() -> None:
    assert credit(rows_of(([1.0] * 8, [""] * 8))) == [0.1] * 8
    assert credit(rows_of(([0.0] * 8, [""] * 8))) == [0.0] * 8
    two_of_eight = credit(rows_of(([1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0], [""] * 8)))
    assert two_of_eight[:2] == pytest.approx([1.720182, -0.540061], abs=1e-6)
    assert credit(rows_of(([3.0], [""]))) == pytest.approx([0.3])


def test_returns_below_zero_are_refused() -> None:
    with pytest.raises(RecordError) as error:
        credit(rows_of(([1.0, -0.5], ["", ""])))
    assert str(error.value) == (
        "task 0, rollout 1, step 0: what was earned is -0.5, and a share of less than 0 would blame what is no worse "
        "than the others; shift the rewards, or use grpo"
    )


def test_copo_has_the_numbers_of_the_specification() -> None:
    rows = rows_of(MIXED, RIGHT, WRONG)
    table, part = table_of(rows), GlobalShare(of=methods.grpo().advantage, blend=AnswerBlend(mode="global_only"))
    assert part.blend.measure_entropy(table).tolist() == pytest.approx([1.251629, 0.0, 0.0], abs=1e-6)
    assert part.reward_tasks(table).tolist() == pytest.approx([0.397669, 1.0, 0.0], abs=1e-6)
    assert part(table).values[::6].tolist() == pytest.approx([-0.135499, 1.060839, -0.925340], abs=1e-5)
    scattered = table_of(rows_of(SCATTERED))
    assert part.blend.measure_entropy(scattered).tolist() == pytest.approx([2.584963], abs=1e-6)
    assert part.reward_tasks(scattered).tolist() == pytest.approx([0.027778], abs=1e-6)
    assert part(scattered).values.tolist() == [0.0] * 6  # one task: nobody to compare it with
    soft = AnswerBlend(mode="soft").weigh(table, part(table).values)
    assert soft[::6].tolist() == pytest.approx([0.778707, 0.006693, 0.006693], abs=1e-6)
    method = methods.copo(mode="soft")
    assert method.channels is not None
    both = method.advantage(table).values + method.channels["global"](table).values
    assert both[[0, 4]].tolist() == pytest.approx([0.472667, -1.035289], abs=1e-5)


def test_where_rollouts_all_do_equally_well_tasks_are_compared() -> None:
    method = methods.copo()
    assert method.channels is not None
    table = table_of(rows_of(RIGHT, WRONG))
    assert method.advantage(table).values.tolist() == [0.0] * 12
    assert method.channels["global"](table).values[::6].tolist() == pytest.approx([0.707106, -0.707106], abs=1e-5)
    assert method.channels["global"](table_of(rows_of(RIGHT, RIGHT))).values.tolist() == [0.0] * 12


def test_rollouts_without_an_answer_have_one_in_common() -> None:
    unread = table_of(rows_of(([0.0] * 4, [None, "", None, "7"])))
    assert AnswerBlend().measure_entropy(unread).tolist() == pytest.approx([0.811278], abs=1e-6)


def random_rows(rng: random.Random) -> list[Row]:
    return [
        {
            "task": task,
            "rollout": rollout,
            "step": index,
            "reward": rng.choice([0.0, 0.0, 1.0, rng.random()]),
            "answer": rng.choice(["7", "7", "12", None, ""]),
        }
        for task in range(rng.randint(1, 4))
        for rollout in range(rng.randint(1, 6))
        for index in range(rng.randint(1, 3))
    ]


@pytest.mark.few(3)
@pytest.mark.parametrize("mode", ["soft_forced", "soft", "forced", "zero_only", "global_only"])
@pytest.mark.parametrize("consistency", [True, False])
def test_copo_is_what_the_oracle_says(mode: Any, consistency: bool) -> None:
    rng = random.Random(f"copo {mode}")
    for _ in range(NUM_TABLES // 3):
        rows = random_rows(rng)
        method, table = methods.copo(mode=mode, consistency=consistency, gain=2.0, midpoint=0.7), table_of(rows)
        assert method.channels is not None
        within, between = method.advantage(table), method.channels["global"](table)
        (expected, compared), tasks = oracle.copo(rows, mode=mode, consistency=consistency, gain=2.0, midpoint=0.7)
        assert within.values.tolist() == pytest.approx(expected, rel=1e-6, abs=1e-9)
        assert within.compared.tolist() == compared
        assert between.values.tolist() == pytest.approx(tasks, rel=1e-6, abs=1e-9)
        derived = [between.trace.derive(table, step).value for step in range(len(table))]  # type: ignore[union-attr]
        assert derived == pytest.approx(between.trace.values.tolist(), rel=1e-9, abs=1e-9)


def test_after_vgpo_is_what_the_oracle_says() -> None:
    rng = random.Random("vgpo")
    for _ in range(NUM_TABLES):
        rows = random_rows(rng)
        expected, compared = oracle.after_vgpo(rows, k=0.3)
        made = methods.after_vgpo(k=0.3).advantage(table_of(rows))
        assert made.values.tolist() == pytest.approx(expected, rel=1e-9, abs=1e-12)
        assert made.compared.tolist() == compared


@pytest.mark.parametrize(
    ("options", "part"), [({}, "AnswerBlend"), ({"mode": "forced"}, "GlobalShare")], ids=["by entropy", "forced"]
)
def test_an_environment_without_answers_is_refused_before_a_model_loads(options: dict[str, Any], part: str) -> None:
    config = small_config().model_copy(update={"algorithm": methods.copo(**options), "env": Household()})
    with pytest.raises(ConfigError, match=rf"^algorithm: {part}.* reads the step info 'answer', which the environment"):
        check_algorithm(config)
    without = methods.copo(mode="forced", consistency=False)
    check_algorithm(config.model_copy(update={"algorithm": without}))


def test_a_table_without_answers_is_refused() -> None:
    rows = [{name: value for name, value in row.items() if name != "answer"} for row in rows_of(MIXED)]
    with pytest.raises(RecordError, match="answer"):
        credit(rows, "copo")
