"""What a run file asks for that goes against what it is made of, said before the run begins."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from groupwise.rollout.prompts import AnchoredWindow, Full, History, Window
from groupwise.training.config.checks import count_steps_shown, list_notices
from tests.unit.training.runs import small_config

ENDING = "; the published method takes the same number for both (algorithm.depth, rollout.history)"


def test_how_much_of_the_past_a_history_shows() -> None:
    assert count_steps_shown(Window(steps=0)) == (0, 0)
    assert count_steps_shown(Window(steps=3)) == (3, 3)
    assert count_steps_shown(Full())[1] is None
    # Cut back by whole strides of 4: of 7 past steps 3 are shown, of 10 there are 6.
    assert count_steps_shown(AnchoredWindow(low=2, high=6)) == (3, 6)


@pytest.mark.parametrize(
    ("history", "lines"),
    [
        (Window(steps=2), []),
        (Window(steps=0), ["0 past steps"]),
        (Window(steps=4), ["4 past steps"]),
        (AnchoredWindow(low=2, high=6), ["3 to 6 past steps"]),
        (Full(), ["all past steps"]),
    ],
)
def test_a_depth_beside_another_history_is_worth_a_line(history: History, lines: list[str]) -> None:
    config = small_config(method="hgpo")
    config = config.model_copy(update={"rollout": config.rollout.model_copy(update={"history": history})})
    expected = [f"steps are compared by up to 2 earlier states, while prompts show {words}{ENDING}" for words in lines]
    assert list_notices(config) == expected
    assert list_notices(small_config(method="gigpo")) == []
