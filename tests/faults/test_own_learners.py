"""Learners of a user's own that answer something else than a run needs: one sentence, before anything is written."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from groupwise.learner import Learned
from groupwise.learner.protocol import check_opened
from groupwise.learner.weight_check import WeightCheck
from groupwise.system.errors import ConfigError, TrainingError
from groupwise.training.loop import train
from groupwise.training.metrics import check_metrics
from tests.unit.training.runs import small_run


@pytest.mark.parametrize(
    ("learned", "said"),
    [
        (None, "learn returned nothing; return Learned(metrics=...), with numbers by name"),
        ({"extra/x": 1.0}, "learn returned a dict of 1; return Learned(metrics=...), with numbers by name"),
        (
            Learned(metrics={"extra/x": "high"}),
            "learn returned a str for the metric 'extra/x'; give a finite number, or",
        ),  # type: ignore[dict-item]
        (
            Learned(metrics={"extra/x": float("inf")}),
            "learn returned the float inf for the metric 'extra/x'; give a finite",
        ),
    ],
)
def test_what_learn_gives_is_checked_before_the_sync(tmp_path: Path, learned: Any, said: str) -> None:
    run = small_run(tmp_path)
    run.learner.learn = lambda samples, totals: learned  # type: ignore[method-assign]
    with pytest.raises(TrainingError) as raised:
        train(run)
    assert str(raised.value).startswith(f"the learner LocalLearner: {said}")
    assert run.engine.version == 0
    assert run.journal.last_number() == -1


@pytest.mark.parametrize("wrong", ["high", None, True, [1.0], float("-inf")], ids=str)
def test_a_metric_that_is_no_number_is_refused_by_name(wrong: Any) -> None:
    with pytest.raises(TrainingError, match=r"^metric 'extra/x' is .*; give a finite number, or leave it out$"):
        check_metrics({"extra/x": wrong})


def test_numbers_of_numpy_become_plain_and_nan_says_that_nothing_was_measured() -> None:
    checked = check_metrics({"extra/x": np.float32(1.5), "extra/y": float("nan"), "extra/z": np.int64(3)})
    assert checked == pytest.approx({"extra/x": 1.5, "extra/y": float("nan"), "extra/z": 3}, nan_ok=True)
    assert [type(value) for value in checked.values()] == [float, float, int]


def test_a_learner_that_cannot_say_how_many_steps_it_made_is_refused(tmp_path: Path) -> None:
    learner = SimpleNamespace(**{name: getattr(small_run(tmp_path).learner, name) for name in ("learn", "imitate")})
    with pytest.raises(ConfigError, match=r"training\.learner \(Mine\): SimpleNamespace has no 'logps'; write `def lo"):
        check_opened(learner, "training.learner (Mine)")
    for name in ("logps", "weights", "hold_reference", "save", "load", "export"):
        setattr(learner, name, lambda *given, **named: None)
    learner.steps, learner.vocabulary_size = 1.5, 8
    with pytest.raises(ConfigError, match=r"'steps' is the float 1\.5; the property must return an integer"):
        check_opened(learner, "training.learner (Mine)")


@pytest.mark.parametrize(
    ("given", "said"),
    [(None, "nothing"), ([], "a list of 0"), ([(0.5,)], "a tuple of 1"), ([("x", "y")], "a tuple of")],
)
def test_scores_that_do_not_fit_name_who_gave_them(given: Any, said: str) -> None:
    sound = SimpleNamespace(version=0, score=lambda pairs: [(0.0, 0.0)], logps=lambda pairs: [(0.0, 0.0)])
    wrong = SimpleNamespace(version=0, score=lambda pairs: given, logps=lambda pairs: given)
    for engine, learner, who in ((sound, wrong, "learner SimpleNamespace: logps"), (wrong, sound, "engine SimpleN")):
        with pytest.raises(TrainingError) as raised:
            WeightCheck((3, 4), (5, 6)).check(engine, learner, version=0)  # type: ignore[arg-type]
        assert str(raised.value).startswith(f"the {who}")
        assert f"returned {said}" in str(raised.value)


def test_weights_that_were_never_handed_over_name_the_transfer_too(tmp_path: Path) -> None:
    run = small_run(tmp_path)
    run.weight_sync = SimpleNamespace(sync=lambda weights, engine, *, version: None)
    with pytest.raises(TrainingError, match=r"had no effect, or training\.weight_sync never called it"):
        train(run)
