"""What a run gets by default where older weights sample than learn, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

from groupwise import ConfigError
from groupwise.credit import Staleness
from groupwise.losses import Mask, OffPolicyMask, PolicyLoss, Truncate
from groupwise.training.config.checks import check_algorithm, list_notices
from groupwise.training.config.run_config import RunConfig
from groupwise.training.config.run_file import decode_run

FREE = {"kind": "server"}


def decode(
    lag: object, *, algorithm: dict[str, Any] | None = None, engine: dict[str, Any] | None = None, **rollout: Any
) -> RunConfig:
    return decode_run(
        {
            "algorithm": algorithm or {"method": "grpo"},
            "env": {"kind": "identity"},
            "model": {"kind": "tiny"},
            "engine": engine or {"kind": "local"},
            "rollout": {"lag": lag, **rollout},
        }
    )


def read_corrections(config: RunConfig) -> tuple[Any, ...]:
    loss = config.algorithm.loss
    assert isinstance(loss, PolicyLoss)
    return loss.corrections


def test_without_a_lag_nothing_is_added() -> None:
    config = decode(0)
    assert read_corrections(config) == ()
    assert config.algorithm.filters == ()


@pytest.mark.parametrize(("lag", "engine"), [(1, None), ("free", FREE)])
def test_a_lag_brings_a_correction_and_a_bound_on_age(lag: object, engine: dict[str, Any] | None) -> None:
    config = decode(lag, engine=engine, max_staleness=2)
    assert read_corrections(config) == (Truncate(),)
    assert config.algorithm.filters == (Staleness(max_staleness=2),)


def test_reading_the_resolved_settings_again_changes_nothing() -> None:
    config = decode(1)
    again = decode_run(config.config())
    assert again == config
    assert again.config() == config.config()


def test_the_defaults_can_be_switched_off() -> None:
    config = decode(1, corrects_lag=False)
    assert read_corrections(config) == ()
    assert config.algorithm.filters == ()


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        ({"corrections": ["mask"]}, (Mask(),)),
        ({"corrections": ["off_policy_mask"]}, (OffPolicyMask(), Truncate())),
        ({"old": "engine"}, ()),
    ],
)
def test_what_corrects_already_stays_alone(loss: dict[str, Any], expected: tuple[Any, ...]) -> None:
    assert read_corrections(decode(1, algorithm={"method": "grpo", "loss": loss})) == expected


def test_replay_has_a_bound_of_its_own() -> None:
    """A filter on staleness would drop every rollout that is replayed."""
    assert decode(1, algorithm={"method": "r3"}).algorithm.filters == ()


def test_a_filter_that_would_drop_what_is_asked_for_is_refused() -> None:
    config = decode(1, algorithm={"method": "grpo", "filters": [{"kind": "staleness", "max_staleness": 0}]})
    with pytest.raises(ConfigError) as caught:
        check_algorithm(config)
    assert str(caught.value) == (
        "algorithm.filters: Staleness(max_staleness=0) drops rollouts that are more than 0 versions old, but "
        "rollout.lag samples up to 1 ahead: slow tasks would be trained less than others. Raise max_staleness of the "
        "filter, lower rollout.max_staleness, or set rollout.lag to 0"
    )


def test_an_engine_that_cannot_go_on_over_a_sync_is_refused_by_name() -> None:
    with pytest.raises(ConfigError) as caught:
        check_algorithm(decode("free"))
    assert str(caught.value) == (
        'rollout.lag: "free" continues rollouts during weight syncs, which the engine LocalEngine cannot do; set '
        "rollout.lag to 1, or use an engine of servers"
    )
    check_algorithm(decode("free", engine=FREE))


@pytest.mark.parametrize("lag", [2, -1, True, "yes", 0.5])
def test_another_lag_is_refused(lag: object) -> None:
    with pytest.raises(ConfigError) as caught:
        decode(lag)
    assert str(caught.value) == (
        f'RunConfig: rollout.lag: found {lag!r}; give 0 (synchronous), 1 (one-step off-policy) or "free" (asynchronous)'
    )


def test_a_free_run_says_at_once_that_it_does_not_repeat() -> None:
    (notice,) = list_notices(decode("free", engine=FREE))
    assert notice == (
        'rollout.lag = "free": results depend on timing, so neither a second run nor a resumed one gives the same '
        "numbers; rollout.lag = 1 is bit-exact reproducible"
    )
    assert list_notices(decode(1)) == []
