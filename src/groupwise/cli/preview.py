"""`groupwise preview`: a run's prompts, parsed actions, and the cost of an update, before training."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Console
from rich.markup import escape
from rich.text import Text

from groupwise.cli import attributed_tokens, screen
from groupwise.cli.arguments import Set, Trust, Unset, argument, flag, load_run_file, need_trainer, option
from groupwise.cli.live import format_duration
from groupwise.parts.part import check_may_open
from groupwise.system.processes import format_bytes

if TYPE_CHECKING:
    from groupwise.training.doctor.preview import PreviewedRollout, PreviewedStep, Reading, RunPreview, UpdateCosts

CUT = "cut off at max_tokens"
"""The sample that is always cut off."""
VERDICT_COLOURS = {"valid": "green", "malformed": "yellow", "invalid": "yellow", "error": "red"}


def preview(
    file: Annotated[Path, argument("RUN", "Run file (TOML) or run folder.")],
    tasks: Annotated[int, option("N", "Number of tasks to show.", min=1)] = 2,
    steps: Annotated[int, option("N", "Number of steps per task.", min=1)] = 3,
    task: Annotated[list[str] | None, option("ID", "Show this task (id or its beginning). Repeatable.")] = None,
    response: Annotated[list[str] | None, option("TEXT", "Response at step 0, 1, ... Repeatable.")] = None,
    tokens: Annotated[bool, flag("--tokens", "List each token with its id and origin.")] = False,
    set_: Set = None,
    unset: Unset = None,
    as_json: Annotated[bool, flag("--json", "Print everything as JSON, with token ids.")] = False,
    trust: Trust = False,
) -> None:
    """Preview the prompts and the cost of a run. No weights are loaded.

    The environment's expert acts, else a possible action is taken, or your --response.
    """
    need_trainer()
    config = load_run_file(file, set_, unset)
    check_may_open(config.env)
    from groupwise.training.doctor.preview import preview_run

    shown = preview_run(config, num_tasks=tasks, num_steps=steps, task_ids=task or (), responses=response or ())
    if as_json:
        screen.print_json(preview_as_json(shown))
    else:
        print_preview(screen.output(), shown, with_tokens=tokens)


def print_preview(console: Console, preview: RunPreview, *, with_tokens: bool) -> None:
    styles = attributed_tokens.choose_styles(console)
    origins = [origin for rollout in preview.rollouts for step in rollout.steps for origin in step.prompt.origins]
    console.print(attributed_tokens.describe_colours([*origins, attributed_tokens.RESPONSE], styles))
    for rollout in preview.rollouts:
        _print_rollout(console, rollout, styles, with_tokens=with_tokens)
    _print_readings(console, preview.readings)
    _print_costs(console, preview.costs)
    for note in preview.notes:
        screen.print_line(f"[yellow]note[/]: {escape(note)}", markup=True, to=console)


def preview_as_json(preview: RunPreview) -> dict[str, Any]:
    return {
        "rollouts": [
            {name: getattr(rollout, name) for name in ("task", "goal", "error")}
            | {"steps": [_step_as_json(step) for step in rollout.steps]}
            for rollout in preview.rollouts
        ],
        "readings": [asdict(reading) for reading in preview.readings],
        "costs": asdict(preview.costs),
        "notes": list(preview.notes),
    }


def _step_as_json(step: PreviewedStep) -> dict[str, Any]:
    return {
        "prompt": "".join(step.prompt_texts),
        "prompt_ids": list(step.prompt.ids),
        "prompt_cut": step.prompt_cut,
        "prompt_texts": list(step.prompt_texts),
        "origins": [str(origin) for origin in step.prompt.origins],
        "response": "".join(step.response_texts),
        "response_ids": list(step.response_ids),
        "response_by": step.said_by,
        "action": step.action,
        "well_formed": step.well_formed,
        "accepted": step.accepted,
        "cut": step.is_cut,
    }


def _print_rollout(
    console: Console, rollout: PreviewedRollout, styles: dict[str, str] | None, *, with_tokens: bool
) -> None:
    goal = f": {escape(screen.shorten(rollout.goal, 100))}" if rollout.goal else ""
    screen.print_line(f"\n[bold]task {escape(rollout.task)}[/]{goal}", markup=True, to=console)
    for number, step in enumerate(rollout.steps):
        counted = attributed_tokens.count_origins(step.prompt.origins, cut=step.prompt_cut)
        console.print(f"\n[bold]step {number}[/]  {counted}")
        console.print(attributed_tokens.lay_out_text(step.prompt_texts, step.prompt.origins, styles), soft_wrap=True)
        responses = [attributed_tokens.RESPONSE] * len(step.response_ids)
        if responses:
            console.print(attributed_tokens.lay_out_text(step.response_texts, responses, styles), soft_wrap=True)
            console.print(Text(_describe_response(step), style="dim"), soft_wrap=True)
        if with_tokens:
            origins = [*step.prompt.origins, *responses]
            ids, texts = (*step.prompt.ids, *step.response_ids), (*step.prompt_texts, *step.response_texts)
            console.print(attributed_tokens.make_token_table(ids, texts, origins))
    if rollout.error:
        screen.print_line(f"[red]the rollout ends here[/]: {escape(rollout.error)}", markup=True, to=console)


def _describe_response(step: PreviewedStep) -> str:
    form = "well formed" if step.well_formed else "malformed"
    fate = "accepted" if step.accepted else "rejected by the environment"
    cut = ", cut off at max_tokens" if step.is_cut else ""
    action = screen.escape_recorded(screen.shorten(step.action, 80))
    return f"{len(step.response_ids)} tokens by {step.said_by}{cut}; read as «{action}», {form}, {fate}"


def _print_readings(console: Console, readings: tuple[Reading, ...]) -> None:
    headings = ("sample response to the first prompt", "text", "action read", "result")
    table = screen.make_table(*headings, align="l")
    for reading in readings:
        verdict = f"{reading.verdict}: {reading.fault}" if reading.fault else reading.verdict
        cut = ", cut off at max_tokens" if reading.is_cut and reading.sample != CUT else ""
        table.add_row(
            f"{reading.sample}{cut}",
            Text(screen.escape_recorded(screen.shorten(reading.response, 50))),
            Text(screen.escape_recorded(screen.shorten(reading.action, 40))),
            Text(screen.escape_recorded(verdict), style=VERDICT_COLOURS[reading.verdict]),
        )
    console.print()
    console.print(table)


def _print_costs(console: Console, costs: UpdateCosts) -> None:
    context = "" if costs.context is None else f" of the model's {costs.context:,}"
    whole = format_duration(costs.seconds * costs.updates)
    lines = (
        f"an update: {costs.rollouts:,} rollouts. If all have the maximum length ({costs.max_steps} steps): "
        f"{costs.sampled_tokens:,} sampled tokens and about {costs.distinct_tokens:,} distinct tokens to read and "
        "learn",
        f"longest prompt: about {costs.longest_prompt:,} tokens{context}",
        f"memory: about {format_bytes(costs.memory)} ({costs.parameters:,} parameters, {costs.trained:,} trained)",
        f"time: about {costs.seconds:.1f} s per such update, {whole} for {costs.updates} updates, for the "
        "arithmetic alone on this machine",
    )
    console.print()
    for line in lines:
        screen.print_line(line, to=console)
