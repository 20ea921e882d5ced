"""Tables of credit inside answers: how well it tells lines apart, and how fast it learns."""

from __future__ import annotations

from typing import Any

from table_text import RESULTS, interval, percent, result, table


def line_credit() -> str:
    """How well each method's credit tells what lines are worth, and what that cost."""
    rows = [
        [
            name,
            *("{r:.2f} [{low:.2f}, {high:.2f}]".format(**row[which]) for which in ("all_lines", "within_answers")),
            f"{row['sampled_for_each_token']:.1f}",
        ]
        for name, row in result("line_credit")["methods"].items()
    ]
    return table(("method", "all lines", "within answers", "sampled for each token"), rows)


def line_learning() -> str:
    """Held-out success at equal sampled tokens."""
    return _compare_learning("tokens", "sampled tokens")


def line_learning_by_episodes() -> str:
    """Held-out success at equal rollouts that train."""
    return _compare_learning("episodes", "rollouts that train")


def _compare_learning(unit: str, words: str) -> str:
    """A variant a row; nothing where it was not measured yet."""
    if not (RESULTS / "line_learning.json").is_file():
        return ""
    measured = result("line_learning")
    compared = measured[f"by_{unit}"]
    rows = []
    for variant, row in compared["variants"].items():
        end, way = row["at_end"], row["over_curve"]
        rows.append(
            [
                variant,
                f"{measured['learning_rates'][variant]['chosen']:g}",
                f"{row['update_at_end']:,.0f}",
                f"{row['tokens_at_end' if unit == 'episodes' else 'episodes_at_end']:,.0f}",
                _success(end),
                _success(way),
                *(["", ""] if variant == measured["baseline"] else _improvement(way)),
                " ".join(percent(point["iqm"], 0) for point in row["curve"][::2]),
            ]
        )
    other = "sampled tokens" if unit == "episodes" else "rollouts that train"
    head = (
        f"after {compared['common']:,} {words} ([result](../results/line_learning.json))",
        *("learning rate", "updates", other, "success", "mean success on the way"),
        *("that is more than GRPO's by, points", "probability of more than GRPO", "curve, %"),
    )
    return table(head, rows)


def _success(case: dict[str, Any]) -> str:
    return f"{percent(case['iqm'])} % [{interval(case['interval'])}]"


def _improvement(case: dict[str, Any]) -> list[str]:
    """How much more than the baseline at the same seed, and how likely more at any two seeds."""
    more, chance = case["more_than_baseline"], case["probability_of_improvement"]
    ends = " to ".join(f"{100 * end:+.1f}" for end in more["interval"])
    low, high = chance["interval"]
    return [f"{100 * more['iqm']:+.1f} [{ends}]", f"{chance['share']:.2f} [{low:.2f}, {high:.2f}]"]
