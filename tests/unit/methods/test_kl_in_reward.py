"""The KL that RLOO, P3O and REINFORCE++ publish in the reward: off by default, two parts where it is asked for."""

from __future__ import annotations

import pytest

from groupwise import ConfigError, Step, Task, Trajectory, methods
from groupwise.credit import shape_group
from groupwise.data.step_table import StepTable


@pytest.mark.parametrize("name", ["rloo", "p3o"])
def test_the_kl_is_off_by_default_and_two_parts_where_it_weighs_something(name: str) -> None:
    plain = methods.build(name)
    assert (plain.scorers, plain.shapers) == (None, ())
    made = methods.build(name, kl_in_reward=0.03)
    assert made.config()["scorers"] == [{"kind": "reference_score", "by_token": False}]
    assert made.config()["shapers"] == [{"kind": "reference_kl", "weight": 0.03}]
    assert made.advantage == plain.advantage
    with pytest.raises(ConfigError, match="weight: expected a number greater than or equal to 0"):
        methods.build(name, kl_in_reward=-1.0)


def test_reinforce_pp_takes_it_off_tokens() -> None:
    made = methods.reinforce_pp(kl_in_reward=0.01, gamma=0.9, eps=1e-4)
    assert made.shapers == ()
    assert made.config()["scorers"] == [{"kind": "reference_score", "by_token": True}]
    returns = {"kind": "token_return", "gamma": 0.9, "kl": 0.01}
    assert made.config()["token_credit"] == {"kind": "whitened_tokens", "of": returns, "eps": 1e-4}
    assert made.loss == methods.reinforce_pp().loss
    with pytest.raises(ConfigError, match="kl: expected a number greater than or equal to 0"):
        methods.reinforce_pp(kl_in_reward=-1.0)


def test_rloo_compares_rewards_less_the_kl() -> None:
    # Rewards 1 and 0; log-ratios to the reference 2 and -1 nats at 0.1 a nat: 0.8 and 0.1, so credit +-0.7.
    group = [
        Trajectory(
            id=str(number),
            task=Task(id="q"),
            rollout=number,
            steps=(
                Step(
                    index=0,
                    reward=reward,
                    response_ids=(5, 6),
                    logp_behaviour=(-0.5, -0.5),
                    info={"reference_logp": reference},
                ),
            ),
        )
        for number, (reward, reference) in enumerate([(1.0, -3.0), (0.0, 0.0)])
    ]
    algorithm = methods.rloo(kl_in_reward=0.1)
    table = StepTable.from_trajectories(shape_group(group, algorithm.shapers))
    assert table.reward.tolist() == pytest.approx([0.8, 0.1])
    assert algorithm.credit(table).values.tolist() == pytest.approx([0.7, -0.7])
