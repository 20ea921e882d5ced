from __future__ import annotations

from groupwise.credit import ByTask, EpisodeReturn, LeaveOneOut, NoScale, Relative
from groupwise.losses import Clip, PolicyLoss, SequenceMean, SequenceRatio
from groupwise.methods.method import Alone, Average, method
from groupwise.methods.terms import take_kl_off_answers
from groupwise.parts import Algorithm, Finite


@method
def rloo(*, average: Average = "rollout", alone: Alone = "zero", kl_in_reward: Finite = 0.0) -> Algorithm:
    """RLOO (Ahmadian et al. 2024, arXiv:2402.14740): a rollout is compared with the mean of the *other* rollouts of its
    task.

    A_i = R_i - mean_{j != i}(R_j) = n / (n - 1) * (R_i - mean(R));   ratio of an answer = product over its tokens

    Choices: a task with one rollout gets 0. The answer is that of a step; its ratio is clipped at 0.2, as in TRL. TRL
    subtracts 0.03 times the KL to the reference from the reward. `kl_in_reward=0.03` does that (the scorer
    `reference_score` and the shaper `reference_kl`, one more forward pass); the default leaves it out. The penalty `kl`
    of the loss with `estimator = "k2"` has the gradient of the same KL.
    """
    return Algorithm(
        advantage=Relative(
            by=ByTask(), of=EpisodeReturn(), baseline=LeaveOneOut(), scale=NoScale(), average=average, alone=alone
        ),
        loss=PolicyLoss(ratio=SequenceRatio(length="sum"), surrogate=Clip(), aggregate=SequenceMean()),
        **take_kl_off_answers(kl_in_reward),
    )
