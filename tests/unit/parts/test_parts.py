"""Parts and slots: what a configuration may say, how it is written down, and how it is named."""

from __future__ import annotations

import numpy as np
import pytest

from groupwise import Algorithm, ConfigError, Part, StepTable, methods
from groupwise.credit import (
    ByHistory,
    ByTask,
    Deviation,
    EpisodeReturn,
    Mean,
    NoScale,
    Relative,
    ReturnToGo,
    Sum,
    Term,
    Whitened,
)
from groupwise.parts.part import CATALOGUES, find_part_class, kind_of, load_catalogue, name_of, page_of
from tests.architecture.sources import ROOT
from tests.unit.tables import single_steps

GROUPERS = (
    "Valid: among_solved, by_branch, by_edge, by_history, by_player, ... (9 in all; docs/reference/parts/grouper.md "
    "lists them)"
)

SMALLEST = {"kind": "relative", "by": {"kind": "by_task"}, "of": {"kind": "episode_return"}}


class ByParity(Part, slot="grouper"):
    """A grouper that did not come with groupwise."""

    offset: int = 0

    def __call__(self, table: StepTable) -> np.ndarray:
        return (table.rollout + self.offset) % 2


class NotAPart:
    """Something else entirely."""


HERE = f"{__name__}:ByParity"


def refusal(**fields: object) -> str:
    with pytest.raises(ConfigError) as caught:
        Algorithm(**fields)
    return str(caught.value)


def with_by(by: object) -> str:
    message = refusal(advantage=SMALLEST | {"by": by})
    assert message.startswith("Algorithm: advantage.by")
    return message.removeprefix("Algorithm: advantage.by")


def test_a_mapping_with_kinds_becomes_the_parts_it_names() -> None:
    assert Algorithm(advantage=SMALLEST).advantage == Relative(by=ByTask(), of=EpisodeReturn())


def test_a_bare_kind_is_enough_for_a_part_without_fields() -> None:
    assert Relative(by="by_task", of="episode_return", scale="no_scale").scale == NoScale()


def test_an_unknown_field_is_named_with_the_nearest_valid_one() -> None:
    assert refusal(advantage=SMALLEST | {"baselin": "mean"}) == (
        "Algorithm: advantage.baselin: unknown setting; did you mean 'baseline'? "
        "docs/reference/parts/estimator.md lists them all"
    )


def test_an_unknown_field_deep_inside_is_found_by_its_path() -> None:
    assert with_by({"kind": "by_history", "depth": 1, "dpth": 2}) == (
        ".dpth: unknown setting; did you mean 'depth'? Valid: depth, peers"
    )


def test_a_missing_field_is_named() -> None:
    assert with_by({"kind": "by_history"}) == ".depth: it is missing; give it a value"


def test_a_value_out_of_range_is_shown() -> None:
    with pytest.raises(ConfigError) as caught:
        ByHistory(depth=-1)
    assert str(caught.value) == "ByHistory: depth: expected a number greater than or equal to 0, found -1"


def test_two_problems_are_told_together() -> None:
    with pytest.raises(ConfigError) as caught:
        ByHistory(dept=1)
    assert str(caught.value) == (
        "ByHistory: depth: it is missing; give it a value. Also dept: unknown setting; did you mean 'depth'? Valid: "
        "depth, peers"
    )


def test_a_part_of_another_slot_does_not_fit() -> None:
    with pytest.raises(ConfigError) as caught:
        Relative(by=Mean(), of=EpisodeReturn())
    assert str(caught.value) == "Relative: by: Mean is a baseline, but a grouper is needed here"


def test_a_kind_of_another_slot_is_unknown_in_this_one() -> None:
    assert with_by("mean") == f": there is no grouper 'mean'; {GROUPERS}"
    assert with_by("mine.FirstHeavy") == (
        f": there is no grouper 'mine.FirstHeavy'; {GROUPERS}. A part of your own is named module:Class, with a colon: "
        "'mine:FirstHeavy'"
    )


def test_an_unknown_kind_is_named_with_the_nearest_valid_one() -> None:
    assert with_by({"kind": "by_histori"}) == (
        ".kind: there is no grouper 'by_histori'; did you mean 'by_history'? "
        "docs/reference/parts/grouper.md lists them all"
    )


@pytest.mark.parametrize("slot", ["", *CATALOGUES])
def test_the_page_to_which_an_error_points_is_there(slot: str) -> None:
    assert (ROOT / page_of(slot)).is_file()


def test_a_table_without_a_kind_is_told_the_kinds() -> None:
    assert with_by({"depth": 2}) == f": the grouper has no `kind`. {GROUPERS}"


def test_a_value_that_is_no_part_is_shown() -> None:
    assert with_by(3) == ": found 3; give a grouper, or a table with its `kind`"


def test_a_part_from_elsewhere_is_named_by_module_and_class() -> None:
    algorithm = Algorithm(advantage=SMALLEST | {"by": {"kind": HERE, "offset": 1}, "scale": "no_scale"})
    assert isinstance(algorithm.advantage, Relative)
    assert algorithm.advantage.by == ByParity(offset=1)
    # Rollouts 0 and 2 with returns 1 and 5 have the mean 3; rollouts 1 and 3 with 2 and 8 have 5.
    assert algorithm.advantage(single_steps([1, 2, 5, 8])).values.tolist() == [-2, -3, 2, 3]


def test_a_part_from_elsewhere_is_written_down_by_module_and_class() -> None:
    assert ByParity(offset=1).config() == {"kind": HERE, "offset": 1}
    assert find_part_class("grouper", HERE) is ByParity


def test_a_package_that_is_not_there_is_named() -> None:
    assert with_by("no_such_package:Grouper") == (
        ": cannot load the grouper 'no_such_package:Grouper': No module named 'no_such_package'; "
        "check that the package is installed"
    )


def test_a_class_that_is_not_there_is_named() -> None:
    assert with_by("fractions:Grouper") == (
        ": cannot load the grouper 'fractions:Grouper': module 'fractions' has no attribute 'Grouper'; "
        "check the name after the colon"
    )


@pytest.mark.parametrize("name", ["NotAPart", "GROUPERS"])
def test_a_thing_from_elsewhere_must_be_a_part(name: str) -> None:
    assert with_by(f"{__name__}:{name}") == (
        f": '{__name__}:{name}' is not a Part; derive the class from groupwise.Part with slot='grouper'"
    )


def test_a_part_from_elsewhere_must_fill_the_slot() -> None:
    assert with_by("groupwise.credit:Mean") == ": Mean is a baseline, but a grouper is needed here"


def test_parts_are_frozen_and_equal_by_their_fields() -> None:
    part = ReturnToGo(gamma=0.5)
    assert part == ReturnToGo(gamma=0.5)
    assert hash(part) == hash(ReturnToGo(gamma=0.5))
    assert part != ReturnToGo(gamma=0.25)
    with pytest.raises(ValueError, match="frozen"):
        part.gamma = 1.0


@pytest.mark.parametrize("name", methods.names())
def test_every_method_is_the_same_after_writing_it_down_and_reading_it_back(name: str) -> None:
    algorithm = methods.build(name)
    assert Algorithm(**algorithm.config()) == algorithm


def test_a_configuration_is_complete_and_names_every_kind() -> None:
    algorithm = Algorithm(advantage=Relative(by=ByHistory(depth=2), of=EpisodeReturn(), virtual=(1.0,)))
    assert algorithm.config() == {
        "advantage": {
            "kind": "relative",
            "by": {"kind": "by_history", "depth": 2, "peers": "any"},
            "of": {"kind": "episode_return"},
            "baseline": {"kind": "mean"},
            "scale": {"kind": "deviation", "ddof": 1, "eps": 1e-6, "factor": 1.0},
            "average": "rollout",
            "alone": "zero",
            "virtual": [1.0],
            "virtual_is_company": True,
        },
        "filters": [],
        "shapers": [],
    }


def test_a_part_and_all_parts_within_it_can_be_walked() -> None:
    inner = Relative(by=ByTask(), of=EpisodeReturn())
    whole = Sum(terms=(Term(weight=1.0, of=Whitened(of=inner)), Term(weight=2.0, of=inner)))
    assert [type(part).__name__ for part in whole.parts()] == [
        "Sum",
        *("Term", "Whitened", "Relative", "ByTask", "EpisodeReturn", "Mean", "Deviation"),
        *("Term", "Relative", "ByTask", "EpisodeReturn", "Mean", "Deviation"),
    ]


def test_only_parts_that_compare_across_tasks_say_so() -> None:
    batchwide = {name for name in methods.names() if any(part.mixes_tasks for part in methods.build(name).parts())}
    assert batchwide == {
        "reinforce_pp",
        "reinforce_pp_baseline",
        "dgpo",
        "a_grae",
        "mars",
        "d3s",
        "dcpo",
        "spo_chain",
        "spae",
        "gardo",
        "copo",
        "ppo",
        "turn_ppo",
    }


@pytest.mark.parametrize(
    "slot", ["grouper", "filter", "signal", "baseline", "scale", "estimator", "shaper", "replay", "hint"]
)
def test_every_kind_of_a_catalogue_leads_to_its_class_and_back(slot: str) -> None:
    for kind, part in load_catalogue(slot).items():
        assert part.slot == slot
        assert find_part_class(slot, kind) is part
        assert kind_of(part) == kind


def test_a_part_is_named_by_its_class_and_the_fields_that_are_not_default() -> None:
    assert name_of(Deviation()) == "Deviation"
    assert name_of(Deviation(ddof=0)) == "Deviation(ddof=0)"
    assert name_of(ByHistory(depth=2)) == "ByHistory(depth=2)"
    assert name_of(Relative(by=ByTask(), of=ReturnToGo(gamma=0.5), average="step")) == (
        "Relative(by=ByTask, of=ReturnToGo(gamma=0.5), average='step')"
    )
    assert name_of(NotAPart()) == "NotAPart"


@pytest.mark.parametrize("name", ["mc_grpo", "gigpo", "hgpo", "a_grae", "dgpo", "ngrpo", "flow_grpo"])
def test_the_released_variants_survive_their_configuration_too(name: str) -> None:
    algorithm = methods.build(name, reference=True)
    assert Algorithm(**algorithm.config()) == algorithm


def test_options_called_name_or_self_are_unknown_options() -> None:
    with pytest.raises(ConfigError, match="unknown setting; Valid: alpha, depth"):
        methods.build("hgpo", name=3)
    with pytest.raises(
        ConfigError, match=r"unknown setting; Valid: advantage, channels, critic, filters, hint, \.\.\. \(1\d in all;"
    ):
        Algorithm(advantage="relative", self=1)
