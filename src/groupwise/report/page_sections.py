"""The sections of the page, in the order in which they are read."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from groupwise.report.charts import (
    Curve,
    draw_credit_bar,
    draw_credit_strip,
    draw_curve_card,
    draw_histogram,
    draw_stacked_bar,
    name_sign,
    scale_credit,
)
from groupwise.report.derived_credit import (
    NUM_SHADES,
    CreditedTokens,
    ShadedText,
    choose_shade,
    describe_company,
    find_reach,
    shade_tokens,
)
from groupwise.report.groups import (
    PlayedAttempt,
    PlayedGroup,
    PlayedStep,
    describe_missing_details,
    describe_set_aside,
    describe_underived,
    read_groups,
)
from groupwise.report.markup import Html, cut_text, join, tag
from groupwise.report.number_format import (
    INTERVAL_LEVEL,
    NO_NUMBER,
    format_compact,
    format_count,
    format_percent,
    format_seconds,
    format_signed,
)
from groupwise.report.overview import count_groups, has_success, sum_stage_seconds
from groupwise.report.prompts import GoalLookup, TaskGoal, TokenTexts
from groupwise.report.rescue import describe_guidance, describe_recalled, describe_shaping, rescue_of
from groupwise.store.run_folder import CONFIG
from groupwise.training.evaluation.summary import RunVerdict
from groupwise.training.metrics import SHARE, find_metric
from groupwise.training.run_reader import RunFolder

MAIN_CURVES = {
    "rollout/success": "Success",
    "rollout/return": "Return",
    "rollout/steps": "Steps",
    "rollout/valid": "Well-formed, accepted actions",
    "rollout/entropy": "Entropy",
    "loss/entropy": "Entropy (learner)",
    "loss/total": "Loss",
    "learner/grad_norm": "Gradient",
    "loss/kl_to_reference": "KL to the reference",
}
"""The metrics that have a curve of their own, where the run has them, and what they are called."""
NUM_TASKS = 3
"""Tasks shown of an update."""


def make_section(name: str, title: str, *content: Html | list[Html] | str | None, lead: str = "") -> Html:
    """A section with its title and a sentence on what it shows."""
    return tag("section", tag("h2", title), tag("p", lead, class_="lead") if lead else None, *content, id=name)


def write_learning_section(folder: RunFolder, verdict: RunVerdict | None) -> Html | None:
    """The curves that say how learning went; all further metrics in a table."""
    curves = [
        make_metric_curve(folder, name, title, verdict)
        for name, title in MAIN_CURVES.items()
        if folder.metrics.get(name) and (name != "rollout/success" or has_success(folder))
    ]
    if not curves:
        return None
    lead = "Measured on the attempts that each update was made from, sampled from the tasks of training."
    scores = verdict is not None and verdict.measure == "success" and "rollout/success" in folder.metrics
    if scores:
        lead += f" Open dots are evaluations with their {INTERVAL_LEVEL} intervals."
    return make_section(
        "learning",
        "How it learnt",
        tag("div", [draw_curve_card(curve) for curve in curves], class_="cards"),
        _write_metric_table(folder),
        lead=lead,
    )


def write_time_section(folder: RunFolder) -> Html | None:
    """Where the time of all updates went."""
    stages = sum_stage_seconds(folder)
    whole = sum(stages.values())
    if not whole:
        return None
    rows = [
        tag(
            "tr",
            tag("th", tag("i", class_=f"swatch shade{min(place, 5)}"), name, scope="row"),
            tag("td", format_seconds(amount)),
            tag("td", format_seconds(amount / max(len(folder.updates), 1))),
            tag("td", format_percent(amount / whole)),
        )
        for place, (name, amount) in enumerate(stages.items())
    ]
    head = tag("tr", [tag("th", name, scope="col") for name in ("stage", "in all", "an update", "share")])
    lead = f"{format_seconds(whole)} over {format_count(len(folder.updates), 'update')}, evaluations not counted."
    table = tag("table", tag("thead", head), tag("tbody", rows))
    return make_section(
        "time", "Where the time went", draw_stacked_bar(stages), tag("div", table, class_="narrow"), lead=lead
    )


def write_groups_section(folder: RunFolder, verdict: RunVerdict | None, last: Sequence[PlayedGroup]) -> Html | None:
    """What the groups were like over the updates, and how the credit of the last one is distributed."""
    counts = count_groups(folder)
    if not counts:
        return None
    span = find_update_span(folder, verdict)
    curves = [
        Curve(
            span=span,
            title="Groups without spread",
            meaning="Share of tasks whose attempts all had the same outcome: between them there is nothing to choose.",
            points=[(count.number, count.equal_share) for count in counts],
            is_share=True,
        ),
        Curve(
            span=span,
            title="Steps compared",
            meaning="Share of steps that stood in a group with somebody else.",
            points=sorted(folder.metrics.get("credit/compared", {}).items()),
            is_share=True,
        ),
    ]
    own = sorted(folder.metrics.get("credit/own_rollout_only", {}).items())
    if any(value for _, value in own):
        meaning = "Fraction of the compared steps that have no other rollout in any of their groups."
        curves.append(
            Curve(span=span, title="Compared with their own rollout only", meaning=meaning, points=own, is_share=True)
        )
    sizes = [(count.number, count.mean_size) for count in counts]
    lead = "Credit comes from comparing attempts at one task. Where they do not differ, nothing is learnt."
    if len({size for _, size in sizes}) == 1:
        lead += f" Every group has {format_compact(sizes[0][1])} attempts."
    else:
        meaning = "Mean attempts at a task that were compared with one another."
        curves.append(Curve(span=span, title="Attempts of a group", meaning=meaning, points=sizes))
    shown = [draw_curve_card(curve) for curve in curves if curve.points]
    shown += [_draw_credit_card(folder, last)] if any(group.steps for group in last) else []
    return make_section(
        "groups",
        "What was compared",
        tag("div", shown, class_="cards"),
        lead=lead,
    )


def write_attempts_section(folder: RunFolder, first: Sequence[PlayedGroup], last: Sequence[PlayedGroup]) -> Html | None:
    """The best and the worst attempt at a few tasks of the first and of the last update."""
    updates = [(folder.updates[0], first), (folder.updates[-1], last)] if folder.updates else []
    chosen = {number: choose_instructive(groups) for number, groups in updates if groups}
    steps = [step for groups in chosen.values() for group in groups for step in group.steps]
    if not steps:
        return None
    shown = [group for groups in chosen.values() for group in groups]
    shades = TokenShades(TokenTexts(folder.path), shown)
    scales = Scales(
        reach=find_usual_reach([step.credit for step in steps]),
        channels=find_channel_reaches(shown),
        shades=shades if shades.has_tokens else None,
    )
    goals = GoalLookup(folder.find_env())
    blocks = [
        join(
            tag("h3", f"Update {number}"),
            [
                write_group(
                    group, goals.find(group.task), scales=scales, is_open=number == folder.updates[-1] and not place
                )
                for place, group in enumerate(groups)
            ],
        )
        for number, groups in chosen.items()
    ]
    lead = (
        "The best and the worst attempt at a few tasks. The bar of a step is its credit: "
        "blue and to the right makes what was done likelier, orange and to the left less likely."
    )
    if any(group.pairs is not None for group in shown):
        lead += " The loss reads pairs of attempts, which stand below each task."
    missing = [
        describe(groups) for groups in chosen.values() for describe in (describe_underived, describe_missing_details)
    ]
    reasons = [*folder.list_untrusted(), *missing]
    notes = [tag("p", f"{reason}.", class_="meaning") for reason in reasons if reason]
    notes += [shades.write_legend()] if shades.has_tokens else []
    return make_section("attempts", "Attempts", join(notes), blocks, lead=lead)


def write_settings_section(folder: RunFolder) -> Html | None:
    """The resolved settings."""
    if not folder.config_text:
        return None
    lines = [
        tag("b", line) if line.startswith("[") else line
        for line in folder.config_text.strip().splitlines(keepends=True)
    ]
    return make_section(
        "settings",
        "Settings",
        tag("details", tag("summary", tag("span", CONFIG, class_="name")), tag("pre", lines)),
        lead="The whole configuration, defaults included; `groupwise train` takes it as it stands.".replace("`", ""),
    )


def choose_instructive(groups: Sequence[PlayedGroup]) -> list[PlayedGroup]:
    """A few groups to look at: those whose outcomes differ most, then those with credit."""
    attempted = [group for group in groups if group.attempts]
    return sorted(attempted, key=lambda group: (-group.spread, not group.teaches))[:NUM_TASKS]


def find_update_span(folder: RunFolder, verdict: RunVerdict | None) -> tuple[int, int]:
    """The first and the last update that any curve shows, so that all of them lie alike."""
    numbers = folder.updates + [score.number for score in (verdict.scores if verdict else ())]
    return min(numbers), max(numbers)


def find_usual_reach(credits: Sequence[float]) -> float:
    """The size that all but the largest twentieth of the credits stay below: what a full bar stands for."""
    sizes = sorted(abs(credit) for credit in credits if math.isfinite(credit))
    return sizes[math.ceil(0.95 * len(sizes)) - 1] or sizes[-1] if sizes else 0.0


def read_last_and_first(folder: RunFolder) -> tuple[list[PlayedGroup], list[PlayedGroup]]:
    """The groups of the last update and of the first; the first is empty where it is the last."""
    if not folder.updates:
        return [], []
    last = read_groups(folder, folder.updates[-1])
    return last, read_groups(folder, folder.updates[0]) if len(folder.updates) > 1 else []


def make_metric_curve(folder: RunFolder, name: str, title: str, verdict: RunVerdict | None) -> Curve:
    """A metric as a curve, with the evaluations where it is success."""
    metric = find_metric(name)
    meaning = metric.meaning[0].upper() + metric.meaning[1:] + "." if metric else name
    has_scores = name == "rollout/success" and verdict is not None and verdict.measure == "success"
    return Curve(
        span=find_update_span(folder, verdict),
        title=title,
        meaning=meaning,
        points=sorted(folder.metrics[name].items()),
        is_share=metric is not None and metric.unit == SHARE,
        scores=verdict.scores if has_scores and verdict else (),
    )


def _write_metric_table(folder: RunFolder) -> Html | None:
    """Every metric in numbers: first, last, lowest, highest."""
    rows = []
    for name, curve in folder.metrics.items():
        values = [value for _, value in sorted(curve.items())]
        if values:
            shown = [format_compact(value) for value in (values[0], values[-1], min(values), max(values))]
            metric = find_metric(name)
            meaning = metric.meaning if metric else None
            cells = [tag("td", value) for value in shown]
            rows.append(tag("tr", tag("th", tag("code", name), scope="row", title=meaning), cells))
    head = tag("tr", [tag("th", name, scope="col") for name in ("metric", "first", "last", "lowest", "highest")])
    table = tag("table", tag("thead", head), tag("tbody", rows))
    summary = tag("summary", tag("span", "Every metric in numbers", class_="name"))
    return tag("details", summary, tag("div", table, class_="scroll"), class_="rest") if rows else None


def _draw_credit_card(folder: RunFolder, last: Sequence[PlayedGroup]) -> Html:
    steps = [step for group in last for step in group.steps]
    silent = sum(not step.credit for step in steps) / len(steps)
    size = sum(abs(step.credit) for step in steps) / len(steps)
    compared = [step.compared for step in steps]
    lonely = (
        ""
        if None in compared
        else f"; {format_percent(1 - sum(map(bool, compared)) / len(compared))} compared with nobody"
    )
    own = [step.own_rollout_only for step in steps if step.compared]
    if own and None not in own:
        lonely += f"; {format_percent(sum(map(bool, own)) / len(own))} of the others only with their own rollout"
    underived = describe_underived(last)
    meaning = (
        f"Share of the steps of update {folder.updates[-1]} by their credit. "
        f"Mean size {format_compact(size)}; exactly 0: {format_percent(silent)}{lonely}."
    )
    return tag(
        "figure",
        tag("figcaption", tag("h3", "Credit"), tag("span", f"update {folder.updates[-1]}", class_="last")),
        draw_histogram([step.credit for step in steps]),
        tag("p", meaning, class_="meaning"),
        tag("p", f"{underived}.", class_="meaning") if underived else None,
        class_="card",
    )


# An attempt as a dialogue: what was shown, what was done, and the credit of each step.

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


# What the page shows below and beside the credit of a step: responses shaded by token credit, channels, pairs.

MAX_TOKENS = 240
"""Tokens of a response that are shown: the first and the last of them."""
MAX_TOKENS_OF_ATTEMPT = 2400
"""Tokens of an attempt that are shaded; responses after them are shown without shades, so that a page stays small."""
MAX_PAIRS = 12
"""Pairs of a group that are listed; more are counted."""

SHADES_MEANING = (
    "Blue with a line below makes a token likelier, orange with a line above less likely. Point at a text to read its "
    "number; groupwise explain --token explains it."
)


class TokenShades:
    """Shades the responses that a page shows; the strongest shade is the largest credit among them."""

    def __init__(self, texts: TokenTexts, groups: Sequence[PlayedGroup]) -> None:
        self._texts = texts
        shown = [step.tokens for group in groups for attempt in (group.best(), group.worst()) for step in attempt.steps]
        self._reach = find_reach(tokens for tokens in shown if tokens is not None)
        self.has_tokens = any(tokens is not None for tokens in shown)
        """Whether any response is shaded."""

    def write_legend(self) -> Html:
        """What the shades mean."""
        low, high = format_signed(-self._reach), format_signed(self._reach)
        swatches = [tag("i", class_=f"shade {name_shade(shade)}") for shade in range(-NUM_SHADES, NUM_SHADES + 1)]
        return tag(
            "p",
            tag("span", "Credit of tokens"),
            tag("span", f"{low} ", swatches, f" {high}", class_="scale"),
            tag("span", "does not train", class_="untrained"),
            tag("span", SHADES_MEANING, class_="meaning"),
            class_="shades",
        )

    def choose_steps(self, steps: Sequence[PlayedStep]) -> set[int]:
        """The indices of an attempt's steps that are shaded: from the first on, until their tokens are too many."""
        chosen, shown = set(), 0
        for step in steps:
            shown += 0 if step.tokens is None else min(len(step.tokens.ids), MAX_TOKENS)
            if shown > MAX_TOKENS_OF_ATTEMPT:
                break
            chosen.add(step.index)
        return chosen

    def write_response(self, tokens: CreditedTokens) -> Html:
        """A response, shaded, and how many of its tokens train with what credit."""
        return join(
            tag("p", list(self._write_pieces(tokens)), class_="said shaded"),
            tag("p", tokens.describe(), class_="meaning"),
        )

    def _write_pieces(self, tokens: CreditedTokens) -> Iterator[Html]:
        num, half, texts = len(tokens.ids), MAX_TOKENS // 2, self._texts.cut(tokens.ids)
        if num <= MAX_TOKENS:
            yield from map(self._write_piece, shade_tokens(tokens, texts))
            return
        yield from map(self._write_piece, shade_tokens(tokens, texts, end=half))
        yield tag("span", f" … {num - 2 * half:,} tokens left out … ", class_="cut")
        yield from map(self._write_piece, shade_tokens(tokens, texts, first=num - half))

    def _write_piece(self, piece: ShadedText) -> Html:
        kind = "untrained" if piece.credit is None else name_shade(choose_shade(piece.credit, self._reach))
        return tag("span", piece.text, class_=kind, title=piece.meaning)


def name_shade(shade: int) -> str:
    """The class of a shade: p1 to p5 for praise, m1 to m5 for blame, p0 for neither."""
    return f"m{-shade}" if shade < 0 else f"p{shade}"


def write_channels(step: PlayedStep, reaches: dict[str, float]) -> Html | None:
    """The credit of a step in each further channel, as bars."""
    if not step.channels:
        return None
    return tag(
        "dl",
        [
            join(tag("dt", f"channel {name}"), tag("dd", draw_credit_bar(credit, reaches.get(name, 0.0))))
            for name, credit in step.channels.items()
        ],
        class_="channels",
    )


def find_channel_reaches(groups: Iterable[PlayedGroup]) -> dict[str, float]:
    """The largest credit of each channel: what a full bar stands for."""
    reaches: dict[str, float] = {}
    for group in groups:
        for attempt in group.members:
            for step in attempt.steps:
                for name, credit in step.channels.items():
                    reaches[name] = max(reaches.get(name, 0.0), abs(credit))
    return reaches


def write_pairs(group: PlayedGroup) -> Html | None:
    """The pairs of a group: who is held against whom, why, and by what margin; None where the loss reads none."""
    if group.pairs is None:
        return None
    if not group.pairs:
        return tag("p", "The loss reads pairs, and these attempts make none.", class_="meaning pairs")
    names = ("over", "why", "margin", "weight")
    head = tag("tr", tag("th", "better", scope="col"), [tag("th", name, scope="col") for name in names])
    rows = [
        tag(
            "tr",
            tag("th", _name_member(pair.winner, pair.winner_step), scope="row"),
            tag("td", _name_member(pair.loser, pair.loser_step)),
            tag("td", pair.why),
            tag("td", f"{pair.gap:.4g}"),
            tag("td", f"{pair.weight:.4g}"),
        )
        for pair in group.pairs[:MAX_PAIRS]
    ]
    more = len(group.pairs) - MAX_PAIRS
    return tag(
        "details",
        tag(
            "summary",
            tag("span", "pairs", class_="name"),
            tag("span", format_count(len(group.pairs), "pair"), class_="meaning"),
        ),
        tag("div", tag("table", tag("thead", head), tag("tbody", rows), class_="pairs"), class_="scroll"),
        tag("p", f"{more:,} more are not listed; `groupwise inspect` has them.".replace("`", ""), class_="meaning more")
        if more > 0
        else None,
    )


def has_details(groups: Iterable[PlayedGroup]) -> bool:
    """Whether any group has token credit, channels or pairs to show."""
    return any(
        group.pairs is not None
        or any(step.tokens is not None or step.channels for attempt in group.members for step in attempt.steps)
        for group in groups
    )


def _name_member(attempt: str | int, step: int | None) -> str:
    return f"attempt {attempt}" if step is None else f"attempt {attempt}, step {step}"
