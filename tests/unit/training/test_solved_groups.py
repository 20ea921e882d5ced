"""Dynamic sampling is refused beside a method that learns from the groups that it would leave out."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from groupwise import ConfigError, methods
from groupwise.parts.part import name_of
from groupwise.training.config.checks import check_algorithm
from groupwise.training.config.run_file import load_run

RUNS = Path(__file__).parents[3] / "examples" / "methods"
NEEDING = {
    name: name_of(part)
    for name in methods.names()
    for part in methods.build(name).parts()
    if getattr(part, "needs_solved_groups", False)
}
"""Methods that learn from tasks that every rollout solved, and the part that does."""


def test_some_methods_learn_from_solved_tasks() -> None:
    assert set(NEEDING) >= {"after_concise_r", "hdpo"}


@pytest.mark.parametrize("name", NEEDING)
@pytest.mark.parametrize(
    ("override", "where"),
    [
        ("rollout.plan=top_up", "rollout.plan: TopUp"),
        ("algorithm.filters=[{kind='zero_spread'}]", "algorithm.filters: ZeroSpread"),
        ("algorithm.filters=[{kind='drop_solved'}]", "algorithm.filters: DropSolved"),
    ],
)
def test_leaving_out_what_is_learnt_from_is_refused(name: str, override: str, where: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_algorithm(load_run(RUNS / f"{name}.toml", overrides=[override]))
    assert str(caught.value) == (
        f"{where} drops the tasks that every rollout solved, but {NEEDING[name]} learns from them; leave out one of "
        "the two"
    )


@pytest.mark.parametrize("name", NEEDING)
def test_the_method_as_it_is_is_not_refused(name: str) -> None:
    check_algorithm(load_run(RUNS / f"{name}.toml"))


def test_a_first_stage_that_needs_no_solved_task_is_not_refused() -> None:
    run = RUNS / "after_concise_r.toml"
    check_algorithm(load_run(run, overrides=["algorithm.stage=1", "rollout.plan=top_up"]))
