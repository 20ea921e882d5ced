"""Write tables and commits of results, performance and other pages from benchmarks/results: no number is typed.

python docs/build_results.py [--check]

A table is below its name, `<!-- table: NAME -->`; the commits of records below `<!-- commits: NAME, NAME -->`. The
words around them are written by hand.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from alfworld_tables import (
    METHODS,
    alfworld,
    alfworld_comparisons,
    alfworld_over_seeds,
    alfworld_seeds,
    alfworld_types,
    scratch_comparisons,
    scratch_over_seeds,
    scratch_training,
    scratch_variants,
)
from cost_tables import gpu_hours
from depth_tables import depth_choices, depth_gains, depth_keys, depth_levels, depth_proposition
from line_tables import line_credit, line_learning, line_learning_by_episodes
from record_commits import commit_sentence
from table_text import interval, percent, result, success, table, times

DOCS = Path(__file__).parent
FULL = DOCS.parent / "benchmarks" / "pages"
PAGES = (
    FULL / "results.md",
    FULL / "performance.md",
    FULL / "line_credit.md",
    FULL / "aliased.md",
    DOCS / "why" / "papers.md",
)
PAGES_WITHOUT_TABLES = (FULL / "prefix_sharing.md",)
"""Pages that quote records and have none of these tables: only commits are written there."""
TABLE = re.compile(r"(<!-- table: (\w+) -->\n)(?:\|.*\n)*")
COMMITS = re.compile(r"(<!-- commits: ([\w, ]+) -->\n)(?:Commits? of .*\n)*")


def small_worlds() -> str:
    """Success of three methods in two small environments."""
    names = {"household": "household", "gridworld": "frozen lake"}
    order = [(world, method) for world in names for method in METHODS]
    measured = {(case["environment"], case["method"]): case for case in result("learning")["summary"]}
    rows = []
    for world, method in order:
        case = measured[world, method]
        curve = " ".join(percent(point["success"]["iqm"], 0) for point in case["curve"])
        before, after = (f"{percent(case[when]['iqm'])} %" for when in ("before", "after"))
        rows.append([names[world], method, before, after, interval(case["after"]["interval"]), curve])
    head = (
        "environment",
        "method",
        "before",
        "after",
        "95 % interval",
        "success while training, by eighths of the run",
    )
    return table(head, rows)


def sparse() -> str:
    """Eight methods with sparse success."""
    rows = []
    for case in result("learning_sparse")["summary"]:
        last, before, after = case["last_quarter"], case["before"], case["after"]
        low, high = (percent(end, 0) for end in last["success"]["interval"])
        first, second = (percent(end, 0) for end in after["interval"])
        rows.append(
            [
                case["environment"],
                case["method"],
                f"{percent(last['success']['iqm'], 0)} % [{low}, {high}]",
                f"{percent(last['with_signal']['iqm'], 0)} %",
                _middle(case["steps_to_level"]),
                _middle(case["tokens_to_level"]),
                f"{percent(before['iqm'])} to {percent(after['iqm'])} % [{first}, {second}]",
            ]
        )
    head = (
        *("task", "method", "success, last quarter", "groups with signal there"),
        *("steps to GRPO's last level, median", "sampled tokens to it", "held out, before to after"),
    )
    return table(head, rows)


def _middle(reached: Sequence[int | None]) -> str:
    """The median over seeds; seeds that never reached the goal count as the latest."""
    middle = median(float("inf") if number is None else number for number in reached)
    return "never" if middle == float("inf") else f"{middle:,.0f}"


def overlap() -> str:
    """Success with and without overlap at equal environment steps."""
    rows = []
    for mark in result("overlap_household")["summary"]["success"]:
        more = mark["more"]["lag 1"]
        seeds = ", ".join(f"{100 * gap:+.1f}" for gap in more["by_seed"].values())
        gap = f"{100 * more['mean']:+.1f} ({' to '.join(f'{100 * end:+.1f}' for end in more['interval'])})"
        rows.append(
            [f"{mark['total_steps']:,}", *(success(variant) for variant in mark["variants"].values()), gap, seeds]
        )
    return table(("environment steps", "lag 0", "lag 1", "lag 1 less lag 0, points", "by seed"), rows)


def overlap_seconds() -> str:
    """Seconds of an update with and without overlap."""
    variants = result("overlap_household")["summary"]["seconds"]
    cores = {"trainer_core_seconds": "processor seconds of the trainer", "engine_core_seconds": "of the engine"}
    rows = [[words, *(f"{variant[side]:.2f}" for variant in variants.values())] for side, words in cores.items()]
    return _stages(variants) + "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _stages(variants: dict[str, Any]) -> str:
    """Medians by stage, one column per variant."""
    stages = dict.fromkeys(stage for variant in variants.values() for stage in variant["stages"])
    rows = [[stage, *(f"{variant['stages'].get(stage, 0.0):.2f}" for variant in variants.values())] for stage in stages]
    return table(
        ("stage", *variants), [*rows, ["whole update", *(f"{variant['seconds']:.2f}" for variant in variants.values())]]
    )


def vllm_update() -> str:
    """An update on a GPU through vLLM and through our engine, by stage."""
    return _stages(result("vllm_update")["variants"])


def credit() -> str:
    """Seconds for the table and for credit, by the number of steps."""
    measured = result("credit")
    names = {"table": "the table, from shuffled columns", **{name: f"advantages: {name}" for name in METHODS}}
    names["hgpo"] += " (depth 4)"
    growth = measured["growth_100k_to_1m"]
    rows = [
        [words, *(_seconds(second) for second in measured["seconds"][name].values()), times(growth[name], 1)]
        for name, words in names.items()
    ]
    return table(("steps", "1,000", "10,000", "50,000", "100,000", "1,000,000", "100k to 1M"), rows)


def _seconds(seconds: float) -> str:
    return f"{seconds:.4f} s" if seconds < 0.01 else f"{seconds:.3f} s"


def credit_loops() -> str:
    """HGPO beside two loops."""
    measured = result("credit")["hgpo_50k"]
    rows = [
        ["ours, table and advantages", f"{measured['ours']:.3f}", ""],
        ["clustered loop", f"{measured['clustered']:.2f}", times(measured["times_faster_than_clustered"], 0)],
        ["literal loop (the oracle)", f"{measured['literal']:.0f}", f"{measured['times_faster_than_literal']:,.0f}x"],
    ]
    return table(("", "processor seconds", "ours is faster by"), rows)


def audit_memory() -> str:
    """An audit of a large file."""
    measured = result("audit_memory")
    row = [f"{measured['file_megabytes']:,} MB", f"{measured['rows']:,}", f"{measured['peak_megabytes']} MB"]
    row += [f"{measured['core_seconds']:.0f}", f"{measured['megabytes_per_core_second']}"]
    return table(("file", "rows", "peak memory", "processor seconds", "MB per core second"), [row])


def prefix_cpu() -> str:
    """What sharing prefixes gains on a CPU."""
    rows = []
    for name, case in result("prefix_cpu").items():
        if not isinstance(case, dict) or "times_faster_than" not in case:
            continue
        faster = case["times_faster_than"]
        rows.append([name, times(case["token_ratio"]), f"**{times(faster['packed'])}**"])
        rows[-1] += [times(faster[layout]) for layout in ("prompts shared", "padded, sorted")]
        rows[-1].append(f"{case['largest_gradient_error']:.1e}")
    head = (
        "rollouts, history",
        "fewer tokens",
        "ours faster than packed",
        "than prompts shared",
        "than padded, sorted",
    )
    return table((*head, "gradient error"), rows)


def prefix_gpu() -> str:
    """What sharing prefixes gains on a GPU, two shapes of model side by side."""
    shapes = [result("prefix_gpu")["shapes"][shape] for shape in ("1.5B", "0.5B")]
    names = [name for name, case in shapes[0].items() if isinstance(case, dict) and "by_layout" in case]
    rows = []
    for name in names:
        large, small = (shape[name] for shape in shapes)
        faster = [case["times_faster_than"] for case in (large, small)]
        peaks = [f"{large['by_layout'][layout]['peak_gigabytes']:.1f}" for layout in ("shared", "packed")]
        rows.append(
            [
                name,
                _pair(times(case["fewer_tokens"]) for case in (large, small)),
                f"**{_pair(times(one['packed']) for one in faster)}**",
                _pair(f"{case['share_of_ratio']:.2f}" for case in (large, small)),
                _pair(times(one.get("prompts shared")) for one in faster),
                _pair(f"{case['by_layout']['shared']['raw_tokens_per_second']:,.0f}" for case in (large, small)),
                _pair(f"{case['by_layout']['shared']['utilisation']:.0%}" for case in (large, small)),
                _pair(peaks),
            ]
        )
    head = (
        *("rollouts, history", "fewer tokens than packed", "ours faster than packed", "of the token ratio"),
        *("than prompts shared", "raw tokens/s", "utilisation", "peak GB at 1.5B, ours / packed"),
    )
    return table(head, rows)


def _pair(cells: Iterable[str]) -> str:
    return " / ".join(cells)


def gpu_update() -> str:
    """Where the time of an update on a GPU goes."""
    measured = result("gpu_update")
    rows = [
        [stage, f"{seconds:.2f}", f"{percent(measured['shares'][stage])} %"]
        for stage, seconds in measured["parts"].items()
    ]
    return table(("stage", "seconds", "fraction"), rows)


def loop() -> str:
    """Rollouts per second, compared with TRL."""
    rows = []
    for case in result("loop")["cases"]:
        pairs = ", ".join(f"{pair['trl_seconds'] / pair['ours_seconds']:.1f}" for pair in case["pairs"])
        name = f"{case['prompt_tokens']} + {case['response_tokens']}" + ", KL penalty" * case["kl_penalty"]
        speeds = [f"{case[side]['rollouts_per_second']:.0f}" for side in ("ours", "trl")]
        outside = f"{percent(case['share_outside_model'])} %"
        rows.append([name, *speeds, f"{case['times_faster']:.1f}x ({pairs})", outside])
    rows.sort(key=lambda row: ("307" not in row[0], "64" in row[0], row[0]))
    head = ("prompt + response tokens", "ours, rollouts/s", "TRL", "ours is faster by (both pairs)")
    return table((*head, "our time outside the model"), rows)


def engine() -> str:
    """A decoding step on a GPU."""
    rows = []
    for name, case in result("engine")["cases"].items():
        ours, stock = case["static_cache_engine"], case["generate_dynamic"]
        apart = ours["milliseconds_apart"]
        rows.append([f"{name.rpartition(' ')[2]} tokens", f"{ours['milliseconds_a_step']:.2f}"])
        rows[-1] += [f"{stock['milliseconds_a_step']:.1f}", f"**{stock['static_cache_engine_faster_decoding']:.1f}x**"]
        rows[-1].append(f"{stock['static_cache_engine_faster_all']:.1f}x")
        rows[-1].append(f"{', '.join(f'{apart[part]:.2f}' for part in ('attention', 'sampling', 'rest'))} ms")
    head = ("prompts of", "milliseconds per step, static cache", "`generate`", "faster, decoding")
    return table((*head, "faster, with reading the prompts", "attention, sampling, rest of a step"), rows)


def past_rollouts() -> str:
    """Queries to the index of past rollouts."""
    questions = {
        "recent": "the newest 64 rollouts of a task",
        "recent_of_8_versions": "the same, of the last 8 versions only",
        "mean_score": "mean past score of a task",
        "newest_of_any_task": "the newest 4,096 rollouts at any task (`selective_buffer`, once an update)",
    }
    measured = result("history_index")
    rows = [
        [words, *(_median_and_99th(measured[tasks][question]) for tasks in ("20000_tasks", "64_tasks"))]
        for question, words in questions.items()
    ]
    return table(("question", "20,000 tasks, median (99th percentile)", "64 tasks"), rows)


def _median_and_99th(measured: dict[str, float]) -> str:
    digits = 0 if measured["median_ms"] > 1 else 2
    return f"{measured['median_ms']:.{digits}f} ({measured['p99_ms']:.{digits}f})"


def envs() -> str:
    """Steps per second of the environments that have an original package to compare with."""
    rows = []
    for name, case in result("envs")["environments"].items():
        if "stock" not in case:
            continue
        ours, stock = (case[side]["steps_per_second_without_opening"] for side in ("ours", "stock"))
        sizes = [many["steps_per_second"] for many in case["many"] if not many["workers"]]
        rows.append([name, _speed(case["stock"]), _speed(case["ours"]), _ratio(ours / stock)])
        rows[-1].append(_pair(f"{speed:,.0f}" for speed in sizes))
    head = ("environment", "stock", "ours", "ours / stock, steps alone", "8 / 32 / 128 rollouts side by side")
    return table(head, rows)


def _speed(case: dict[str, float]) -> str:
    return f"{case['steps_per_second']:,.0f} ({case['core_milliseconds_per_step']:.3f})"


def _ratio(ratio: float) -> str:
    """A ratio as text; large ratios need no decimals."""
    return f"{ratio:.0f}" if ratio >= 10 else f"{ratio:.2f}"


def own_envs() -> str:
    """Steps per second of our own environments."""
    speeds = {
        name: case["ours"]["steps_per_second"]
        for name, case in result("envs")["environments"].items()
        if "ours" in case and "stock" not in case and "without the list" not in name
    }
    return table(list(speeds), [[f"{speed:,.0f}" for speed in speeds.values()]])


def engine_vllm() -> str:
    """The agent load on a GPU, beside vLLM."""
    sides = ("ours", "vLLM, a seed a request", "vLLM, no seeds")
    rows = []
    for shape, measured in result("engine_vllm")["shapes"].items():
        case = measured["cases"]["agent"]
        speeds = [f"{case[side]['median_seconds']:.2f} ({case[side]['responses_per_second']:,.0f})" for side in sides]
        rows.append([shape, *speeds, *(f"**{case[side]['ours_is_faster']['ours']:.2f}x**" for side in sides[1:])])
    head = ("shape", "ours", "vLLM, one seed per request", "vLLM, no seeds")
    return table((*head, "ours is faster than with seeds", "than without"), rows)


def engine_profile() -> str:
    """Where the agent load's time goes, by turn."""
    parts = {shape: sides["ours"]["recorded"] for shape, sides in result("engine_profile")["shapes"].items()}
    rows = [
        [group, *(f"{1000 * part['seconds_by_group'][group] / part['turns']:.1f}" for part in parts.values())]
        for group in next(iter(parts.values()))["seconds_by_group"]
    ]
    idle = [sum(part["idle_seconds"].values()) for part in parts.values()]
    rows.append(
        ["nothing runs", *(f"{1000 * gap / part['turns']:.1f}" for gap, part in zip(idle, parts.values(), strict=True))]
    )
    return table(("milliseconds per turn", *parts), rows)


def small_papers() -> str:
    """The run files of papers with a small model: what ran, and how long it took."""
    runs = [run for name in ("papers", "papers_vllm") for run in result(name)["runs"]]
    rows = []
    for run in runs:
        seconds, updates = run["seconds"], run["updates"]
        rows.append(
            [
                f"`{run['file']}`",
                run["engine"],
                *(f"{value:.0f}" for value in seconds.values()),
                f"{updates['learner/optimizer_steps'][-1]:.0f}",
                "yes" if min(updates["learner/grad_norm"]) > 0 else "no",
                "yes" if run["the exported model has the same"] else "no",
            ]
        )
    stages = [f"{stage}, s" for stage in runs[0]["seconds"]]
    head = ("run file", "engine", *stages, "optimizer steps", "gradients", "exported model evaluates alike")
    return table(head, rows)


TABLES: dict[str, Callable[[], str]] = {
    made.__name__: made
    for made in (
        *(small_worlds, alfworld, alfworld_types, alfworld_seeds, alfworld_over_seeds, alfworld_comparisons),
        *(scratch_over_seeds, scratch_comparisons, scratch_training, scratch_variants),
        *(sparse, credit, credit_loops, audit_memory, prefix_cpu, prefix_gpu),
        *(line_credit, line_learning, line_learning_by_episodes),
        *(gpu_update, overlap, overlap_seconds, vllm_update, loop, engine, past_rollouts, envs, own_envs),
        *(engine_vllm, engine_profile, gpu_hours),
        *(small_papers, depth_gains, depth_choices, depth_keys, depth_levels, depth_proposition),
    )
}
"""Each table by the name that a page gives it."""


def page(before: str) -> str:
    """The page with current tables and commits."""
    return write_commits(TABLE.sub(lambda match: match[1] + TABLES[match[2]](), before))


def write_commits(before: str) -> str:
    """The page with current commits of its records."""
    return COMMITS.sub(lambda match: match[1] + "".join(map(commit_sentence, match[2].split(", "))), before)


def main() -> None:
    """Write the tables; with --check, report which page is stale."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a page is not up to date")
    is_check = parser.parse_args().check
    for path in (*PAGES, *PAGES_WITHOUT_TABLES):
        text = path.read_text(encoding="utf-8")
        written = page(text) if path in PAGES else write_commits(text)
        if not is_check:
            path.write_text(written, encoding="utf-8")
        elif written != text:
            sys.exit(f"{path} is stale; run `python docs/build_results.py`")


if __name__ == "__main__":
    main()
