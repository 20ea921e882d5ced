"""Oracle of HGPO, read off the paper: for each step, for each level, list who shares that much history."""

from __future__ import annotations

from tests.oracles.rows import (
    Result,
    Row,
    Step,
    deviation,
    returns_to_go,
    spread,
    steps_of,
    zscore,
)
from tests.oracles.state import episode_term, hold_two_rollouts, penalise

EPS = 1e-6


def hgpo(
    rows: list[Row],
    *,
    depth: int = 2,
    alpha: float = 1.0,
    gamma: float = 0.95,
    scale: str = "std",
    episode: bool = False,
    invalid_penalty: float = 0.1,
    refused_penalty: float = 0.0,
    peers: str = "any",
    skip_average: bool = False,
    reference: bool = False,
) -> Result:
    """A = sum_k w_k A_k / sum_k w_k over the levels k = 0..depth a step has, w_k = (k+1)^alpha (numbers, HGPO).

    Level k compares a step with the steps of its task that share its last k+1 states. With the episode entry (weight
    1) or in the release (`reference`), level k weighs (k+2)^alpha; the release also drops entries that are exactly 0
    and adds 1e-6 to the denominator (numbers, HGPO released). The paper's experiments drop these entries too
    (`skip_average`).

    Example (numbers, Routes): A_0 = 0.7071 and A_1 = 1.0 give (1 x 0.7071 + 2 x 1.0) / 3 = 0.9024; the release gives
    (2 x 0.7071 + 3 x 1.0) / 5 = 0.8828.

    With `peers` "other_rollouts" (ours), a level on which one rollout is alone compares nobody.
    """
    steps = steps_of(rows)
    place = {(step.task, step.rollout, step.index): step for step in steps}
    ahead = penalise(returns_to_go(steps, gamma), invalid_penalty, refused_penalty)
    terms = episode_term(steps, scale=scale, invalid_penalty=invalid_penalty, reference=reference)
    first_weight = 2 if episode or reference else 1
    contexts = [{step: states_back(step, level, place) for step in steps} for level in range(depth + 1)]

    def credit(step: Step) -> tuple[float, bool]:
        entries: list[tuple[float, float]] = []
        is_compared = False
        if episode:
            value, is_compared = terms[step]
            if is_compared or reference:
                entries.append((1.0, value))
        for level, context in enumerate(contexts):
            if context[step] is None:
                continue
            members = [other for other in steps if other.task == step.task and context[other] == context[step]]
            if not (len(members) > 1 if peers == "any" else hold_two_rollouts(members)):
                continue
            is_compared = True
            numbers = [ahead[other] for other in members]
            value = zscore(ahead[step], numbers, ddof=0, eps=EPS) if scale == "std" else deviation(ahead[step], numbers)
            entries.append((float(level + first_weight) ** alpha, value))
        return blend(entries, drops_zeros=skip_average or reference, eps=1e-6 if reference else 0.0), is_compared

    return spread(rows, steps, credit)


def states_back(step: Step, level: int, place: dict[tuple[object, object, int], Step]) -> tuple[object, ...] | None:
    """C_k(s_t) = (s_{t-k}, ..., s_t); None where one of these steps is not recorded or has no state.

    Example: a rollout in states u, v, w has C_1 = (v, w) at its last step and no C_3.
    """
    states = []
    for index in range(step.index - level, step.index + 1):
        past = place.get((step.task, step.rollout, index))
        if past is None or past.state is None:
            return None
        states.append(past.state)
    return tuple(states)


def blend(entries: list[tuple[float, float]], *, drops_zeros: bool, eps: float) -> float:
    """The weighted mean of the entries; 0 where there is none.

    Example: weights 1, 2, 3 and values 0.5, 1.0, -0.2 give (0.5 + 2.0 - 0.6) / 6 = 0.3167.
    """
    if drops_zeros:
        entries = [(weight, value) for weight, value in entries if value != 0.0]
    if not entries:
        return 0.0
    return sum(weight * value for weight, value in entries) / (sum(weight for weight, _ in entries) + eps)
