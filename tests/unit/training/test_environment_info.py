"""A part that reads what the environment does not tell is refused before a model loads."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

from groupwise import ConfigError, methods
from groupwise.credit import ByTask, ColumnSignal, Relative
from groupwise.envs import Gridworld, Identity, Lookup
from groupwise.parts.algorithm import Algorithm
from groupwise.rollout.judges import CheckedSteps, PhraseJudge
from groupwise.rollout.scorers import JudgeScore
from groupwise.training.config.checks import check_algorithm
from groupwise.training.config.run_config import RunConfig
from tests.end_to_end import runs


class Unlisted(Identity, slot="env"):
    """An environment from outside that does not say what it tells."""


def make(env: Any, column: str, **fields: Any) -> RunConfig:
    estimator = Relative(by=ByTask(), of=ColumnSignal(name=column))
    algorithm = Algorithm(advantage=estimator, loss=methods.dr_grpo().loss, **fields)
    return runs.config(1).model_copy(update={"algorithm": algorithm, "env": env})


def test_a_info_key_that_the_environment_does_not_tell() -> None:
    with pytest.raises(ConfigError) as raised:
        check_algorithm(make(Gridworld(), "num_calls"))
    assert str(raised.value) == (
        "algorithm: ColumnSignal(name='num_calls') reads the step info 'num_calls', which the environment "
        "'gridworld' does not give; use one that does (lookup, storefront, webshop, search_qa, bfcl), or a scorer "
        "that writes it"
    )


def test_a_judge_that_goes_by_what_nobody_tells() -> None:
    asks: dict[str, Any] = {"scorers": (JudgeScore(),), "judge": CheckedSteps()}
    with pytest.raises(
        ConfigError, match=r"CheckedSteps reads the step info 'checks', which the environment 'identity'"
    ):
        check_algorithm(make(Identity(), "judge_score", **asks))
    check_algorithm(make(Lookup(), "judge_score", **asks))


def test_what_may_be_there_is_not_refused() -> None:
    check_algorithm(make(Lookup(), "num_calls"))
    check_algorithm(make(Gridworld(), "a column of mine"))
    check_algorithm(make(Unlisted(), "num_calls"))
    measured: dict[str, Any] = {"scorers": (JudgeScore(info_key="exact"),), "judge": PhraseJudge(phrases=(("a", 1.0),))}
    check_algorithm(make(Gridworld(), "exact", **measured))
