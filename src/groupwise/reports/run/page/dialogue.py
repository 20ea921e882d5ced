"""An attempt as a dialogue: what was shown, what was done, and the credit of each step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from groupwise.reports.run.derived_credit import describe_company
from groupwise.reports.run.goals import TaskGoal
from groupwise.reports.run.number_format import NO_NUMBER, format_compact, format_count
from groupwise.reports.run.page.details import TokenShades, write_channels, write_pairs
from groupwise.reports.run.page.marks import draw_credit_bar, draw_credit_strip, name_sign, scale_credit
from groupwise.reports.run.page.markup import Html, cut_text, join, tag
from groupwise.reports.run.rescue import describe_guidance, describe_recalled, describe_shaping, rescue_of
from groupwise.reports.run.update_groups import PlayedAttempt, PlayedGroup, PlayedStep, describe_set_aside

MAX_CHARACTERS = 600
"""How much of a text is shown."""
MAX_STEPS = 60
"""How many steps of an attempt are shown: the first and the last of them."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Scales:
    """What full bars and the strongest shades of a page stand for."""

    reach: float
    """Size of the credit of a step that a full bar stands for."""
    channels: dict[str, float] = field(default_factory=dict)
    """The same for each further channel, by name."""
    shades: TokenShades | None = None
    """What shades tokens; None where no token has credit of its own."""


def write_group(group: PlayedGroup, goal: TaskGoal, *, scales: Scales, is_open: bool = False) -> Html:
    """A task with its attempts at a glance, and the best and the worst of them in full."""
    best, worst = group.best(), group.worst()
    chosen = [("best", best)] if best is worst else [("best", best), ("worst", worst)]
    return tag(
        "article",
        tag(
            "header",
            tag("h4", cut_text(goal.text or group.task, 240)),
            tag("p", _describe_group(group, goal), class_="meaning"),
        ),
        [
            _write_attempt(attempt, name, scales=scales, is_open=is_open and not place)
            for place, (name, attempt) in enumerate(chosen)
        ],
        write_pairs(group),
        class_="group",
    )


def _describe_group(group: PlayedGroup, goal: TaskGoal) -> Html:
    tags = join(*(tag("span", name, class_="tag") for name in goal.tags))
    judged = [attempt for attempt in group.attempts if attempt.success is not None]
    solved = sum(bool(attempt.success) for attempt in judged)
    words = f"{solved} of {len(judged)} attempts solved it" if judged else format_count(len(group.attempts), "attempt")
    if not group.teaches:
        words += "; no step of them has credit" if group.pairs is None else "; they make no pair"
    rescue = rescue_of(group)
    if rescue is not None:
        done = {
            "recalled": describe_recalled(rescue),
            "shaped": describe_shaping(rescue),
            "guidance": describe_guidance(rescue),
        }
        words += "".join(f"; {name}: {what}" for name, what in done.items() if what != NO_NUMBER)
    if group.set_aside:
        words += f"; {describe_set_aside(group)}"
    shown = tag("code", group.task) if goal.text else None
    return join(tags, _draw_dots(group), words, " ", shown)


def _draw_dots(group: PlayedGroup) -> Html:
    """A dot for each attempt, full where it succeeded."""
    high = max(group.outcomes)
    dots = [
        tag(
            "i",
            class_="full" if _is_good(attempt, high) else None,
            title=f"attempt {attempt.attempt}: outcome {format_compact(attempt.outcome)}",
        )
        for attempt in group.attempts
    ]
    return tag("span", dots, class_="dots", aria_hidden="true")


def _is_good(attempt: PlayedAttempt, high: float) -> bool:
    return bool(attempt.success) if attempt.success is not None else attempt.outcome == high


def _write_attempt(attempt: PlayedAttempt, name: str, *, scales: Scales, is_open: bool) -> Html:
    outcome = "" if attempt.success is not None else f"outcome {format_compact(attempt.outcome)}"
    words = [f"attempt {attempt.attempt}", format_count(len(attempt.steps), "step"), outcome, _describe_stop(attempt)]
    return tag(
        "details",
        tag(
            "summary",
            _write_badge(attempt),
            tag("span", name, class_="name"),
            tag("span", " · ".join(filter(None, words)), class_="meaning"),
            draw_credit_strip([step.credit for step in attempt.steps], scales.reach),
        ),
        tag("p", cut_text(attempt.error, MAX_CHARACTERS), class_="fault") if attempt.error else None,
        tag("ol", _write_steps(attempt.steps, scales), class_="steps"),
        open=is_open,
    )


def _write_badge(attempt: PlayedAttempt) -> Html | None:
    if attempt.success is None:
        return None
    return tag("span", "solved", class_="badge good") if attempt.success else tag("span", "not solved", class_="badge")


def _describe_stop(attempt: PlayedAttempt) -> str:
    stop = "" if attempt.stop == "terminated" else attempt.stop
    return stop if attempt.origin == "fresh" else f"{attempt.origin} {stop}".strip()


def _write_steps(steps: Sequence[PlayedStep], scales: Scales) -> list[Html]:
    half = MAX_STEPS // 2 if len(steps) > MAX_STEPS else len(steps)
    first, last = steps[:half], steps[half:][-half:]
    shaded = scales.shades.choose_steps([*first, *last]) if scales.shades else set()
    rows = [[_write_step(step, scales, is_shaded=step.index in shaded) for step in part] for part in (first, last)]
    left_out = tag("li", f"… {len(steps) - 2 * half} steps left out …", class_="left-out")
    return [*rows[0], left_out, *rows[1]] if last else rows[0]


def _write_step(step: PlayedStep, scales: Scales, *, is_shaded: bool) -> Html:
    notes, reach = [], scales.reach
    if step.flaw:
        notes.append(tag("span", step.flaw, class_="tag warn"))
    if step.cut:
        notes.append(tag("span", "cut off", class_="tag warn"))
    if step.reward:
        notes.append(tag("span", f"reward {format_compact(step.reward)}", class_="tag"))
    return tag(
        "li",
        tag("span", class_=f"edge {name_sign(step.credit)}", style=f"opacity:{scale_credit(step.credit, reach):.2f}"),
        tag("span", str(step.index), class_="index"),
        tag(
            "div",
            tag("p", cut_text(step.observation, MAX_CHARACTERS), class_="seen") if step.observation else None,
            _write_response(step, scales.shades if is_shaded else None),
            tag("p", cut_text(step.action, MAX_CHARACTERS) or "(no action)", notes, class_="done"),
            class_="said-and-done",
        ),
        tag("div", _write_credit(step, reach), write_channels(step, scales.channels), class_="credit"),
    )


def _write_response(step: PlayedStep, shades: TokenShades | None) -> Html | None:
    """What the model said: shaded where its tokens have credit of their own, and they are not too many."""
    if step.tokens is not None and step.tokens.ids and shades is not None:
        return shades.write_response(step.tokens)
    words = step.words_beyond_action
    said = tag("p", cut_text(words, MAX_CHARACTERS), class_="said") if words else None
    if step.tokens is None or not step.tokens.ids:
        return said
    return join(said, tag("p", f"{step.tokens.describe()}; not shaded, to keep the page small", class_="meaning"))


def _write_credit(step: PlayedStep, reach: float) -> Html:
    if step.compared is False:
        return tag("span", "alone", class_="alone", title="compared with nobody")
    with_whom = f"compared with {describe_company(step.company)}" if step.company else None
    return tag("span", draw_credit_bar(step.credit, reach), title=with_whom, class_="weighed")
