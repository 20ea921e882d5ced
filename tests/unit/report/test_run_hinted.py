"""Hinted rollouts of a plan, as pages over a run show them: whose they are, how they did, and what was asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import tomli_w

from groupwise import Trajectory, methods
from groupwise.data.records import Origin, SetAside
from groupwise.report.groups import PlayedGroup, describe_requests, read_groups
from groupwise.report.page import render_page
from groupwise.report.rescue import Rescue, describe_hint, describe_origin, has_rescues, rescue_of
from groupwise.store.journal import Journal, Update
from groupwise.training.run_reader import RunFolder
from tests.unit.report.rescue_runs import credit_of, group
from tests.unit.report.run_folders import settings

HOTTER, HINT = "hotter; temperature 1.5", "a hint; joins unhinted; trains without its hint"


def guide(trajectories: Sequence[Trajectory], first: int = 0) -> list[Trajectory]:
    """Rollouts as a plan's hinted requests leave them, numbered from `first`."""
    return [
        replace(
            trajectory,
            origin=Origin.HINTED,
            off_policy=True,
            rollout=first + place,
            id=f"{trajectory.task.id}/{first + place}",
        )
        for place, trajectory in enumerate(trajectories)
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """t fails; its group of its own at another temperature solves once; two hints join u; others replace v."""
    path, algorithm = tmp_path_factory.mktemp("hinted"), methods.build("grpo")
    own = [
        *group("t", 0.0, 0.0),
        *guide(group("t~beef", 1.0, 0.0)),
        *group("u", 0.0, 0.0),
        *guide(group("u", 1.0, 0.0), first=2),
        *guide(group("v", 1.0, 0.0), first=2),
    ]
    asked = {("t~beef", 0): HOTTER, ("t~beef", 1): HOTTER, ("u", 2): HINT, ("u", 3): HINT}
    aside = [SetAside(trajectory=trajectory, by="the plan: took its place") for trajectory in group("v", 0.0, 0.0)]
    (path / "config.toml").write_text(tomli_w.dumps(settings(algorithm)), encoding="utf-8")
    with Journal(path / "journal.sqlite") as journal:
        journal.write(
            Update(
                number=1,
                version=1,
                metrics={"hint/groups": 3.0, "hint/success": 0.5},
                trajectories=own,
                credit=credit_of(algorithm, own, 0),
                request_words=asked,
                set_aside=aside,
            )
        )
    return path


@pytest.fixture(scope="module")
def groups(folder: Path) -> dict[str, PlayedGroup]:
    with RunFolder(folder) as run:
        return {group.task: group for group in read_groups(run, 1)}


def rescue(group: PlayedGroup) -> Rescue:
    summary = rescue_of(group)
    assert summary is not None
    return summary


def test_a_group_of_its_own_holds_its_hinted_rollouts(groups: dict[str, PlayedGroup]) -> None:
    own = groups["t~beef"]
    assert [rollout.rollout for rollout in own.rollouts] == [0, 1]
    assert own.joined == ()
    assert own.outcomes == [1.0, 0.0]
    assert own.teaches
    assert own.num_compared == 2
    assert describe_hint(rescue(own)) == HOTTER
    assert rescue(own).is_rescued
    assert describe_requests(own) == [f"rollouts 0, 1 requested: {HOTTER}"]


def test_hinted_rollouts_that_join_are_counted_by_how_they_did(groups: dict[str, PlayedGroup]) -> None:
    joined = groups["u"]
    assert [rollout.rollout for rollout in joined.rollouts] == [0, 1]
    assert [rollout.rollout for rollout in joined.joined] == [2, 3]
    assert describe_hint(rescue(joined)) == "2 rollouts with a hint joined, 1 solved"
    assert rescue(joined).by == ["hint"]
    assert rescue(joined).size_without == 0.0
    assert rescue(joined).is_rescued
    assert describe_origin(joined.joined[0]) == f"hinted: {HINT}"


def test_hinted_rollouts_that_replaced_a_group_are_the_group(groups: dict[str, PlayedGroup]) -> None:
    replaced = groups["v"]
    assert [rollout.rollout for rollout in replaced.rollouts] == [2, 3]
    assert replaced.joined == ()
    assert [rollout.rollout for rollout in replaced.set_aside] == [0, 1]
    assert describe_hint(rescue(replaced)) == "with a hint"
    assert rescue(replaced).is_rescued, "those whose place they took were all alike"


def test_the_page_has_a_section_for_them(folder: Path) -> None:
    with RunFolder(folder) as run:
        assert has_rescues(run)
        section = render_page(run, method="hinted").partition('<section id="rescued">')[2].partition("</section>")[0]
    assert '<th scope="col">hint</th>' in section
    assert HOTTER in section
