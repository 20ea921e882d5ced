from __future__ import annotations

from groupwise.credit import ByTask, NoBaseline, NoScale, Relative, ReturnToGo, Whitened
from groupwise.losses import Clip, PolicyLoss, TokenMean
from groupwise.methods.dr_grpo import dr_grpo
from groupwise.methods.method import method
from groupwise.methods.terms import take_kl_off_tokens
from groupwise.parts import Algorithm, Finite, Share


@method
def reinforce_pp(*, gamma: Share = 1.0, eps: Finite = 1e-8, kl_in_reward: Finite = 0.0) -> Algorithm:
    """REINFORCE++ (Hu 2025, arXiv:2501.03262): returns whitened over all tokens of the batch; no groups.

    A_t = (R_t - mean_tok(R)) / sqrt(var_tok(R) + eps)

    Choices: over several steps, R_t is the return-to-go. Tasks mix by design; the only rollout of a task still gets a
    signal. Tokens that filters drop do not count. The source subtracts a KL to the reference from each token's reward,
    and so does `kl_in_reward=0.01`; the default leaves it out. With it, R_t is the return of the token
    (`token_return`), and `gamma` discounts per token instead of per step. Clip 0.2, mean over tokens.
    """
    returns = Relative(
        by=ByTask(), of=ReturnToGo(gamma=gamma), baseline=NoBaseline(), scale=NoScale(), average="step", alone="raw"
    )
    return Algorithm(
        advantage=Whitened(of=returns, eps=eps),
        loss=PolicyLoss(surrogate=Clip(), aggregate=TokenMean()),
        **take_kl_off_tokens(kl_in_reward, gamma=gamma, eps=eps),
    )


@method
def reinforce_pp_baseline(*, eps: Finite = 1e-8) -> Algorithm:
    """REINFORCE++ with baseline (Hu 2025, arXiv:2501.03262): Dr. GRPO's advantage, whitened over all tokens of the
    batch.

    A_i = whiten_tok(R_i - mean(R))

    Choices: the mean is over rollouts; a task with one rollout enters with 0. Whitening shifts the values, so an
    all-correct task can get an advantage that is not 0, as in verl. Loss as for REINFORCE++.
    """
    return Algorithm(advantage=Whitened(of=dr_grpo().advantage, eps=eps), loss=reinforce_pp().loss)
