"""Results as Markdown tables, more of them than benchmarks/pages/performance.md shows.

python -m benchmarks.prefix.table benchmarks/results/prefix_gpu.json
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NONE = "-"
GPU_HEAD = (
    "source, history, rollouts",
    "fewer tokens than packed",
    "ours faster than packed",
    "of the ratio",
    "than prompts shared",
    "than padded, sorted",
    "than padded",
    "raw tokens/s",
    "utilisation, ours / packed",
    "peak GB, ours / packed",
)
CPU_HEAD = (
    *("rollouts, history", "fewer tokens", "ours faster than packed", "than prompts shared", "than padded, sorted"),
    "gradient error",
)


def cases(sections: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What a shape measured on rollouts, without what failed or was left out."""
    for section in sections.values():
        if isinstance(section, dict) and "by_layout" in section:
            yield section


def gpu_table(sections: dict[str, Any]) -> list[str]:
    """One row a case."""
    return _table(GPU_HEAD, [_gpu_row(case) for case in cases(sections)])


def case_name(case: dict[str, Any]) -> str:
    """Source, history, rollouts, and what is unusual about how the model ran."""
    name = f"{case['source']}, {case['history']}, {case['rollouts']}"
    name += ", checkpointed" if case["checkpointed"] else ""
    name += "" if case.get("compiled", True) else ", not compiled"
    return f"{name} (made up)" if case["made_up"] else name


def _gpu_row(case: dict[str, Any]) -> list[str]:
    rows, faster = case["by_layout"], case["times_faster_than"]
    return [
        case_name(case),
        times(case["fewer_tokens"]),
        f"**{times(faster['packed'])}**",
        f"{case['share_of_ratio']:.2f}",
        *(times(faster.get(layout)) for layout in ("prompts shared", "padded, sorted", "padded")),
        f"{rows['shared']['raw_tokens_per_second']:,.0f}",
        _pair(rows, "utilisation", ".0%"),
        _pair(rows, "peak_gigabytes", ".1f"),
    ]


def cpu_table(sections: dict[str, Any]) -> list[str]:
    """One row a comparison."""
    rows = [
        [
            name,
            times(section["token_ratio"]),
            f"**{times(section['times_faster_than']['packed'])}**",
            *(times(section["times_faster_than"].get(layout)) for layout in ("prompts shared", "padded, sorted")),
            f"{section['largest_gradient_error']:.1e}",
        ]
        for name, section in sections.items()
        if isinstance(section, dict) and "times_faster_than" in section
    ]
    return _table(CPU_HEAD, rows)


def aims(sections: dict[str, Any]) -> list[str]:
    """What a shape shows of what was aimed at."""
    measured = list(cases(sections))
    lines = []
    if measured:
        lowest = min(case["share_of_ratio"] for case in measured)
        lines.append(f"- least share of the token ratio that becomes speed: {lowest:.2f} (aim 0.9)")
    used = [row["utilisation"] for case in measured if (row := case["by_layout"]["shared"])["utilisation"]]
    if used:
        lines.append(f"- utilisation of ours: {min(used):.0%} to {max(used):.0%} (aim 50 %)")
    if "seconds" in (nothing := sections.get("nothing shared", {})):
        share = nothing["times_as_fast_as_packed"]
        lines.append(
            f"- nothing shared: {share['shared']:.3f} as fast as packed, {share['forced']:.3f} without the gate"
        )
    lines += little_shared(sections)
    if "shared" in (memory := sections.get("memory", {})):
        peaks = [f"{memory[name]['peak_gigabytes']:.2f} GB" for name in ("shared", "packed")]
        lines.append(f"- peak memory of a full micro-batch: {peaks[0]}, packed {peaks[1]}")
    if "float32" in (gradients := sections.get("gradients", {})):
        lines.append(f"- gradients in float32: {gradients['float32']['shared']:.1e} from padded rows (aim 1e-5)")
    return lines


def little_shared(sections: dict[str, Any]) -> list[str]:
    """Where sharing begins to pay."""
    return [
        f"- {times(case['fewer_tokens'])} fewer tokens, no gate: {times(case['times_as_fast_as_packed'])} faster"
        for case in sections.get("little shared", {}).values()
        if isinstance(case, dict)
    ]


def failures(sections: dict[str, Any]) -> list[str]:
    """What failed or was left out, and why."""
    return [
        f"- {name}: {section.get('error') or section['left_out']}"
        for name, section in sections.items()
        if isinstance(section, dict) and ("error" in section or "left_out" in section)
    ]


def tables(result: dict[str, Any]) -> str:
    """All tables of a result."""
    lines: list[str] = []
    for shape, sections in result.get("shapes", {}).items():
        product = sections.get("matrix product", {}).get("teraflops")
        head = f"{shape} shape, {sections['token_budget']:,} tokens a micro-batch"
        lines += [head + (f", matrix product {product:.0f} TFLOP/s:" if product else ":"), ""]
        lines += [*gpu_table(sections), "", *aims(sections), *failures(sections), ""]
    if "shapes" not in result:
        lines += [*cpu_table(result), "", *little_shared(result), *failures(result)]
    return "\n".join(lines).rstrip()


def times(ratio: float | None) -> str:
    """A ratio with its sign; nothing where there is none."""
    return NONE if ratio is None else f"{ratio:.2f}x"


def _pair(rows: dict[str, Any], key: str, form: str) -> str:
    values = [rows[name].get(key) for name in ("shared", "packed")]
    return NONE if None in values else " / ".join(format(value, form) for value in values)


def _table(head: tuple[str, ...], rows: list[list[str]]) -> list[str]:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return [f"| {' | '.join(line)} |" for line in lines]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("result", type=Path, help="what the benchmark wrote")
    print(tables(json.loads(parser.parse_args().result.read_text())))


if __name__ == "__main__":
    main()
