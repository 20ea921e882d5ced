"""`groupwise audit --state`: what several state rules would compare in recorded sessions of agents."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from rich.markup import escape
from rich.table import Table

from groupwise.agents.recorded_sessions import open_sessions
from groupwise.cli.arguments import build_algorithm
from groupwise.cli.screen import file_progress, format_plain_percent, make_table, output, print_json
from groupwise.parts.part import Slot, find_part_class
from groupwise.report.audit_sessions import BANDS, ROLLOUTS, SessionAudit, StateRule, audit_sessions
from groupwise.system.errors import ConfigError, FileError, RecordError

METHODS = ("hgpo", "hgpo:gamma=1,episode=true,peers=other_rollouts")
"""The default methods: HGPO as published, and the default for agents."""


def audit_states(
    file: Path, state: str, *, writes: str | None, ignore: str | None, method: list[str] | None, as_json: bool
) -> None:
    sessions = open_sessions(file)
    known_writes = list(sessions.writes) if writes is None else _split(writes)
    settings: dict[str, Any] = {"writes": known_writes} if known_writes else {}
    if ignore is not None:
        settings["ignore"] = _split(ignore)
    rules = {name: _make_rule(name, settings) for name in state.split(",")}
    algorithms = {name: build_algorithm(name) for name in method or METHODS}
    with file_progress(sessions.size, f"auditing {file.name}") as progress:
        try:
            truth = _make_rule("writes", settings) if known_writes else None
            result = audit_sessions(sessions.calls(progress), rules, algorithms, writes=truth)
        except FileError:
            raise
        except RecordError as error:
            raise RecordError(f"{file}: {error}") from None
    if as_json:
        print_json(result.as_json())
    else:
        _print_audit(result, file)


def _split(tools: str) -> list[str]:
    return tools.split(",") if tools else []


def _make_rule(name: str, settings: dict[str, Any]) -> StateRule:
    """A rule with those settings that it has."""
    try:
        fields = find_part_class("state_rule", name).model_fields
        if name == "writes" and "writes" not in settings:
            raise ConfigError("name the tools that change the environment: --writes TOOL,...")
        own = {key: value for key, value in settings.items() if key in fields}
        return cast(StateRule, Slot("state_rule").fill({"kind": name, **own}))
    except ConfigError as error:
        raise ConfigError(f"--state {name}: {error}") from None


def _print_audit(result: SessionAudit, file: Path) -> None:
    console = output()
    mixed = "not recorded" if result.mixed_tasks is None else f"differ in {result.mixed_tasks} of the tasks"
    console.print(f"[bold]Audit of {escape(str(file))}[/]")
    console.print(
        f"{result.tasks} tasks, {result.rollouts} rollouts, {result.steps} steps, {result.later_steps} of them later "
        f"steps (not the first of a rollout); final scores: {mixed}\n"
    )
    console.print(_make_rules_table(result), "")
    console.print(_make_steps_table(result), "")
    if result.methods:
        console.print(_make_methods_table(result), "")
    console.print("[bold]Findings[/]")
    for number, finding in enumerate(result.findings, start=1):
        colour = "red" if finding.level == "red" else "yellow"
        console.print(f" {number}. [{colour}]{finding.level}[/] {escape(finding.rule)}: {escape(finding.text)}")
    if not result.findings:
        console.print(" No alarm.")


def _make_rules_table(result: SessionAudit) -> Table:
    headings = ("rule", "keys", "peers", "comparisons", "differing\nscores", "false pairs\nby writes")
    more = ("false pairs\nby state", "largest\nkey", "calls\nof a key", f"peers with\n{ROLLOUTS} rollouts")
    table = make_table(*headings, *more, title="What each rule compares (fractions of later steps)", bold=True)
    for rule in result.rules:
        table.add_row(
            escape(rule.name),
            str(rule.keys),
            format_plain_percent(rule.peers),
            f"{rule.comparisons:.1f}",
            *(_format_known(share) for share in (rule.differing, rule.false_by_writes, rule.false_by_state)),
            format_plain_percent(rule.largest_key),
            str(rule.calls_of_key),
            _format_known(rule.fitted),
        )
    return table


def _make_steps_table(result: SessionAudit) -> Table:
    bands = (f"{first}" if first == last else f"{first}-{last}" if last else f"{first}+" for first, last in BANDS)
    table = make_table("rule", *bands, title="Steps with peers, by step number (the first step is 0)", bold=True)
    for rule in result.rules:
        table.add_row(
            escape(rule.name), *("-" if share is None else _format_known(share) for share in rule.peers_by_step)
        )
    return table


def _make_methods_table(result: SessionAudit) -> Table:
    table = make_table("method", "rule", "compared", "on unmixed\ntasks", align="llr", title="Advantages", bold=True)
    for share in result.methods:
        shares = (format_plain_percent(share.compared), format_plain_percent(share.unmixed))
        table.add_row(escape(share.method), escape(share.rule), *shares)
    return table


def _format_known(share: float | None) -> str:
    return "unknown" if share is None else format_plain_percent(share)
