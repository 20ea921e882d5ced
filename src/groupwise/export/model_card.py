"""The card of an exported policy: what it is, how it was trained, and how well it did on which tasks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from groupwise import __version__
from groupwise.evaluation.summary import Evaluation
from groupwise.export.choose_checkpoint import read_evaluations
from groupwise.reports.run.run_folder import RunFolder

CARD = "README.md"
SETTINGS = "groupwise_run.toml"
"""The run's settings, complete, beside the weights."""


def write_card(folder: Path, run: RunFolder, *, update: int, base: str | None, is_adapter: bool) -> None:
    """Write the card, and the run's settings beside it.

    Args:
        folder: the exported folder.
        run: where the policy comes from.
        update: after which update.
        base: the model that it began as, by its name on the hub; None = one that no hub has.
        is_adapter: whether the folder holds an adapter, which needs that model.
    """
    (folder / CARD).write_text(make_card(run, update=update, base=base, is_adapter=is_adapter), encoding="utf-8")
    (folder / SETTINGS).write_text(run.config_text, encoding="utf-8")


def make_card(run: RunFolder, *, update: int, base: str | None, is_adapter: bool) -> str:
    """The card's text: fields that a hub reads, then what a person reads."""
    evaluations = [evaluation for evaluation in read_evaluations(run) if evaluation.number in (0, update)]
    lines = [
        "---",
        *_list_fields(base, is_adapter=is_adapter),
        "---",
        "",
        f"# {run.name}, update {update}",
        "",
        f"A policy trained with groupwise {__version__}: {run.describe_method()} in "
        f"the environment `{_name_kind(run.setting('env'))}`, {update} of {run.setting('training.updates')} updates, "
        f"seed {run.setting('seed') or 0}.",
        "",
        *_describe_evaluations(evaluations),
        "## Load it",
        "",
        *_describe_loading(is_adapter=is_adapter),
        "Prompts have to look as they did in training: "
        f"`rollout` in `{SETTINGS}` has the template, the memory of past steps and the rule that reads actions, and "
        f"`groupwise preview {SETTINGS} --set model.path=.`, called in this folder, shows them where the run had a "
        "pretrained model.",
        "",
    ]
    return "\n".join(lines)


def _list_fields(base: str | None, *, is_adapter: bool) -> list[str]:
    fields = [f"library_name: {'peft' if is_adapter else 'transformers'}", "pipeline_tag: text-generation"]
    fields += [f"base_model: {json.dumps(base)}"] if base else []
    return [*fields, "tags:", "- reinforcement-learning", "- groupwise"]


def _describe_evaluations(evaluations: list[Evaluation]) -> list[str]:
    if not evaluations:
        return ["It was not evaluated on held-out tasks.", ""]
    lines = [
        "| update | success | 95 % interval | tasks | attempts | split | panel |",
        "|---:|---:|---|---:|---:|---|---|",
    ]
    for evaluation in evaluations:
        low, high = evaluation.interval
        lines.append(
            f"| {evaluation.number} | {100 * evaluation.success:.1f} % | {100 * low:.1f} to {100 * high:.1f} | "
            f"{evaluation.tasks} | {evaluation.attempts} | {evaluation.split} | `{evaluation.panel}` |"
        )
    note = "The panel is the SHA-256 of its tasks: only evaluations of equal panels can be compared. One run, one seed."
    trained = " These are tasks that it was trained on." if evaluations[0].split == "train" else ""
    return [*lines, "", note + trained, ""]


def _describe_loading(*, is_adapter: bool) -> list[str]:
    if is_adapter:
        code = [
            "from peft import AutoPeftModelForCausalLM",
            "from transformers import AutoTokenizer",
            "",
            'model = AutoPeftModelForCausalLM.from_pretrained("FOLDER")',
            'tokenizer = AutoTokenizer.from_pretrained("FOLDER")',
        ]
        return ["```python", *code, "```", "", "This is an adapter: it needs the model that it was trained on.", ""]
    code = [
        "from transformers import AutoModelForCausalLM, AutoTokenizer",
        "",
        'model = AutoModelForCausalLM.from_pretrained("FOLDER")',
        'tokenizer = AutoTokenizer.from_pretrained("FOLDER")',
    ]
    return ["```python", *code, "```", "", "vLLM serves it: `vllm serve FOLDER`.", ""]


def _name_kind(section: Any) -> str:
    return str(section.get("kind", "unknown")) if isinstance(section, dict) else "unknown"
