"""Tables of the study of HGPO's depth on worlds that hide bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from table_text import result, table

DEPTHS = (1, 2, 4)
POLICIES = {0: "the text alone", 2: "two past steps too"}


def depth_gains() -> str:
    """What depth gains over depth 0, for slices of the dial."""
    words = {"room told": "mistakes show the room", "one reply": "mistakes show one reply"}
    rows = []
    for name, pooled in result("aliased")["pooled"].items():
        window, _, part = name.partition(", ")
        gains = [pooled["gain"][f"{_name_blend(depth)} over {_name_blend(0)}"] for depth in DEPTHS]
        rows.append(
            [
                POLICIES[int(window.split()[1])],
                words.get(part, part).replace("1 hidden bits", "1 hidden bit").replace("1 passages", "1 passage"),
                f"{pooled['cosine']['grpo']:.3f}",
                f"{pooled['cosine'][_name_blend(0)]:.3f}",
                *map(_tell_gain, gains),
            ]
        )
    head = ("the policy sees", "settings", "GRPO", "depth 0", *(f"depth {depth} over depth 0" for depth in DEPTHS))
    return table(head, rows)


def depth_choices() -> str:
    """What alpha and the deviation do to the cosine."""
    pairs = {
        "alpha 0 in the place of 1, depth 2": (_name_blend(2, 0), _name_blend(2)),
        "alpha 4 in the place of 1, depth 2": (_name_blend(2, 4), _name_blend(2)),
        "population deviation in the place of none, depth 0": (_name_blend(0, 1, "population"), _name_blend(0)),
        "population deviation in the place of none, depth 2": (_name_blend(2, 1, "population"), _name_blend(2)),
        "population in the place of sample deviation, depth 0": (
            _name_blend(0, 1, "population"),
            _name_blend(0, 1, "sample"),
        ),
        "population in the place of sample deviation, depth 2": (
            _name_blend(2, 1, "population"),
            _name_blend(2, 1, "sample"),
        ),
    }
    slices = [f"window {window}, {size} rollouts" for window in POLICIES for size in (4, 8, 64)]
    pooled = result("aliased")["pooled"]
    rows = [
        [words, *(_tell_gain(pooled[name]["gain"][f"{first} over {second}"]) for name in slices)]
        for words, (first, second) in pairs.items()
    ]
    head = [f"{POLICIES[window]}, {size} rollouts" for window in POLICIES for size in (4, 8, 64)]
    return table(("what is changed", *head), rows)


def depth_levels() -> str:
    """Bias and variance of single levels, foreseen and measured, where the policy sees the text alone."""
    rows = []
    for size in (8, 64):
        for bits in (0, 1, 2, 3):
            setting = _find_setting(hidden_bits=bits, passages=1, one_reply=False, rollouts=size, window=0)
            for depth in (0, 1, 2):
                foreseen, measured = setting["foreseen"][f"level {depth}"], setting["credit"][f"level {depth}"]
                rows.append(
                    [
                        f"{size}",
                        f"{bits}",
                        f"{depth}",
                        f"{foreseen['company']:.1f}",
                        f"{foreseen['hidden']:.2f}",
                        *(f"{foreseen[part]:.2f} / {measured[part]:.2f}" for part in ("bias", "variance", "error")),
                        f"{measured['compared']:.2f}",
                        f"{measured['cosine'][0]:.3f}",
                    ]
                )
    head = ("rollouts", "hidden bits", "level", "company", "hidden", "bias²", "variance", "error", "compared", "cosine")
    return table(head, rows)


def depth_proposition() -> str:
    """In how many settings the blend lies between the first and the last level."""
    settings = result("aliased")["settings"]
    rows = []
    for depth in DEPTHS:
        nested = [
            [setting["nested"][f"{depth} {name}"] for name in ("level 0", f"level {depth}", "blend")]
            for setting in settings
        ]
        rows.append(
            [
                f"{depth}",
                f"{len(nested)}",
                *(str(sum(last[part] < first[part] for first, last, _ in nested)) for part in ("bias", "variance")),
                *(
                    str(
                        sum(
                            min(first[part], last[part]) <= blend[part] <= max(first[part], last[part])
                            for first, last, blend in nested
                        )
                    )
                    for part in ("bias", "variance")
                ),
                str(sum(blend["variance"] < min(first["variance"], last["variance"]) for first, last, blend in nested)),
            ]
        )
    head = (
        "depth K",
        "settings",
        "level K has less bias² than level 0",
        "level K has less variance than level 0",
        "the blend's bias² is between",
        "the blend's variance is between",
        "the blend's variance is below both",
    )
    return table(head, rows)


def depth_keys() -> str:
    """What it gains to compare by the whole state instead of the text, at depth 0."""
    rows = []
    for window, policy in POLICIES.items():
        for size in (8, 64):
            common = {"passages": 1, "one_reply": False, "rollouts": size, "window": window}
            gains = [
                _find_setting(hidden_bits=bits, **common)["credit"]["level 0, by the whole state"]["gain"]
                for bits in (1, 2, 3)
            ]
            rows.append([policy, f"{size}", *map(_tell_gain, gains)])
    return table(("the policy sees", "rollouts", "1 hidden bit", "2 hidden bits", "3 hidden bits"), rows)


def _name_blend(depth: int, alpha: int = 1, scale: str = "none") -> str:
    return f"depth {depth}, alpha {alpha}, scale {scale}"


def _find_setting(**wanted: Any) -> Any:
    return next(setting for setting in result("aliased")["settings"] if setting["setting"] == wanted)


def _tell_gain(gain: Sequence[float]) -> str:
    middle, low, high = (f"{number:+.3f}" for number in gain)
    return f"{middle} [{low}, {high}]"
