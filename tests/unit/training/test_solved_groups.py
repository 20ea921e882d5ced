"""Dynamic sampling is refused beside a method that learns from the groups that it would leave out."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from groupwise import ConfigError
from groupwise.config.run_file import load_run
from groupwise.training.run_checks import check_algorithm

RUN = Path(__file__).parents[3] / "examples" / "recipes" / "after_concise_r.toml"


@pytest.mark.parametrize(
    ("override", "where"),
    [
        ("rollout.plan={kind='top_up', attempts=8}", "rollout.plan: TopUp"),
        ("algorithm.filters=[{kind='zero_spread'}]", "algorithm.filters: ZeroSpread"),
        ("algorithm.filters=[{kind='drop_solved'}]", "algorithm.filters: DropSolved"),
    ],
)
def test_leaving_out_what_is_learnt_from_is_refused(override: str, where: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_algorithm(load_run(RUN, overrides=[override]))
    assert str(caught.value) == (
        f"{where} leaves out the tasks that every attempt solved, which ConciseWhenSolved learns from; leave out the "
        "one or the other"
    )


def test_the_recipe_as_it_is_and_its_first_stage_are_not_refused() -> None:
    check_algorithm(load_run(RUN))
    check_algorithm(load_run(RUN, overrides=["algorithm.stage=1", "rollout.plan={kind='top_up', attempts=8}"]))
