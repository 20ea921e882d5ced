"""Plain-language findings: what the numbers of an audit mean for somebody about to train."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from groupwise.reports.audit.census import Census
from groupwise.reports.audit.levels import HistoryLevel
from groupwise.reports.audit.recipe_comparison import RecipeColumn
from groupwise.reports.audit.token_comparison import TokenColumn

MUCH_UNREWARDED = 0.05
"""Share of credit without reward from which it is worth a sentence."""
MUCH_OWN_ROLLOUT = 0.05
"""Fraction of compared steps without another rollout in their groups from which it is worth a sentence."""
ENOUGH_STEPS = 30
"""Compared steps below which a level is too thin to speak about."""


def write_findings(census: Census, levels: Sequence[HistoryLevel], recipes: Sequence[RecipeColumn]) -> list[str]:
    """Sentences worth reading first, in the order of the pipeline: groups, states, histories, recipes."""
    return [
        *_describe_groups(census),
        *_describe_states(census, levels),
        *_describe_histories(levels),
        *_describe_recipes(census, recipes),
    ]


def _describe_groups(census: Census) -> Iterator[str]:
    if census.lone_tasks:
        yield (
            f"{_share(census.lone_tasks, census.tasks)} of the tasks have a single attempt: nothing to compare it "
            "with. Sample at least two attempts per task."
        )
    if census.equal_tasks:
        yield (
            f"{_share(census.equal_tasks, census.tasks)} of the tasks have attempts that all score the same: episode "
            "credit (GRPO) is exactly 0 there. Step-level credit may still differ; otherwise filter or replay them."
        )
    sizes = set(census.attempts_per_task)
    if len(sizes) > 1:
        yield f"Group sizes differ ({min(sizes)} to {max(sizes)} attempts): statistics are over the attempts present."
    yield from _describe_flaws(census)


def _describe_flaws(census: Census) -> Iterator[str]:
    if census.malformed_steps:
        yield f"{_share(census.malformed_steps, census.steps)} of the responses were malformed."
    if census.refused_steps:
        yield f"{_share(census.refused_steps, census.steps)} of the actions were refused by the environment."
    if census.invalid_steps and census.malformed_steps is None and census.refused_steps is None:
        yield (
            f"{_share(census.invalid_steps, census.steps)} of the steps were invalid: malformed, or refused by the "
            "environment; the file does not say which."
        )


def _describe_states(census: Census, levels: Sequence[HistoryLevel]) -> Iterator[str]:
    if census.steps_without_state:
        yield (
            f"{_share(census.steps_without_state, census.steps)} of the steps have no state: "
            "GiGPO and HGPO cannot compare them."
        )
    shallow = levels[0]
    with_state = shallow.compared_steps + shallow.alone_steps
    if with_state and shallow.compared_steps < 0.25 * with_state:
        yield (
            f"Only {_share(shallow.compared_steps, with_state)} of the steps share their state: step-level credit will "
            "be thin. Look for counters, time stamps or ids in the state keys (`groupwise check rollouts`)."
        )
    if shallow.compared_steps and shallow.equal_steps > 0.5 * shallow.compared_steps:
        yield (
            f"{_share(shallow.equal_steps, shallow.compared_steps)} of the steps that share a state share one return "
            "too: compared, and nothing learnt."
        )


def _describe_histories(levels: Sequence[HistoryLevel]) -> Iterator[str]:
    shallow = levels[0]
    # The deepest level that still compares enough steps to speak about.
    deep = next((level for level in reversed(levels[1:]) if level.compared_at_both >= ENOUGH_STEPS), None)
    if deep is None:
        return
    plural = "s" if deep.depth > 1 else ""
    yield (
        f"{_share(deep.split_steps, shallow.compared_steps)} of the steps that share a state stand in one that was "
        f"reached by several histories (depth {deep.depth})."
    )
    yield (
        f"{deep.compared_steps} steps ({_share(deep.compared_steps, shallow.compared_steps)} of those) still find "
        f"company that shares {deep.depth} earlier state{plural} too; for them the baseline moves by "
        f"{deep.baseline_shift:.3g} on average ({deep.relative_shift:.2f} deviations), and {deep.sign_flips} turn sign."
    )


def _describe_recipes(census: Census, recipes: Sequence[RecipeColumn]) -> Iterator[str]:
    for before, after in pairwise(recipes):
        flips, both = after.flips[before.name], after.both_signed[before.name]
        if both:
            yield f"From {before.name} to {after.name}, {_share(flips, both)} of the credited steps change sign."
    for recipe in recipes:
        if recipe.unrewarded_share > MUCH_UNREWARDED:
            yield (
                f"{100 * recipe.unrewarded_share:.1f} % of the credit of {recipe.name} lies in tasks in which nobody "
                "earned anything: most likely a penalty on malformed or refused steps is all that differs there. "
                "Compare with `invalid_penalty=0`, or `refused_penalty=0` where that is set."
            )
    for recipe in recipes:
        own, compared = recipe.own_rollout_steps or 0, recipe.compared_steps
        if own > MUCH_OWN_ROLLOUT * compared:
            yield (
                f"{_share(own, compared)} of the steps that {recipe.name} compares have no other rollout in their "
                'groups: a rollout is compared with itself there. A grouper with `peers = "other_rollouts"` does not '
                "count them as compared."
            )
    last = recipes[-1]
    if last.compared_steps < census.steps:
        missing = census.steps - last.compared_steps
        yield f"{last.name} has nobody to compare {_share(missing, census.steps)} of the steps with; they get 0."


def write_token_findings(recipes: Sequence[TokenColumn]) -> list[str]:
    """What recipes make of tokens, in sentences; nothing where none gives them credit of their own."""
    sentences = []
    for recipe in recipes:
        if recipe.has_own_credit:
            words = f"Under {recipe.name} {_share(recipe.trained_tokens, recipe.tokens)} of the tokens train"
            if recipe.inside_share is not None:
                words += f"; {100 * recipe.inside_share:.1f} % of the variance of their credit lies inside steps"
            sentences.append(f"{words}.")
    for before, after in pairwise(recipes):
        flips, both = after.flips[before.name], after.both_signed[before.name]
        if both:
            share = _share(flips, both)
            sentences.append(f"From {before.name} to {after.name}, {share} of the credited tokens change sign.")
    return sentences


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "0 %"
