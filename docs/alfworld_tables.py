"""Tables of ALFWorld: one run of each method, several seeds, and the seeds pooled."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from table_text import RESULTS, interval, percent, result, success, table

NAMES = json.loads((RESULTS.parent / "alfworld" / "method_names.json").read_text(encoding="utf-8"))
"""What methods are called; the pictures have them from there too."""
METHODS = {method: NAMES[method] for method in ("grpo", "gigpo", "hgpo")}
"""Those that every table has."""
TASK_SETS = ("valid_seen", "valid_unseen")
POOLED = (*TASK_SETS, "both")
COMPARISON = ("comparison", "games", "more, points", "by seed", "probability of improvement")
"""The head of a table of two methods each."""


def alfworld() -> str:
    """Success of one model on ALFWorld, stage by stage."""
    measured = result("alfworld")
    stages = {
        "base": "as it comes",
        "warm_start": "after imitating a searching teacher on 700 games, once",
        **{
            method: f"then {name}, {measured['methods'][method]['total_steps']:,} environment steps"
            for method, name in METHODS.items()
        },
    }
    rows = [
        [
            words,
            *(success(measured["success"][stage][task_set]) for task_set in TASK_SETS),
            _both(measured["success_at_1"][stage]),
        ]
        for stage, words in stages.items()
    ]
    imitated = result("alfworld_imitation")["runs"]["2000 games, twice"]
    words = "for comparison: imitation of 2,000 games, twice, no reinforcement"
    rows.append([words, *(success(imitated[task_set]) for task_set in TASK_SETS), ""])
    return table(("", *TASK_SETS, "both at temperature 1"), rows)


def alfworld_seeds() -> str:
    """The same comparison again, with other settings, by seed and number of environment steps."""
    rows = []
    for measured in _read_seeds():
        start = _both(measured["success"]["warm_start"])
        for steps in (60_000, 75_000):
            reached = [_first_after(measured["methods"][method]["by_mark"], steps) for method in METHODS]
            rows.append([f"{measured['seed']}", f"{steps:,}", start, *(_both(mark["success"]) for mark in reached)])
    return table(("seed", "environment steps", "after imitation", *METHODS.values()), rows)


def _first_after(marks: Sequence[dict[str, Any]], steps: int) -> dict[str, Any]:
    return next(mark for mark in marks if mark["total_steps"] >= steps)


def _both(task_sets: dict[str, Any]) -> str:
    return f"{', '.join(percent(task_sets[task_set]['success']) for task_set in TASK_SETS)} %"


def alfworld_types() -> str:
    """Success by type of task, all games of both task sets: the three methods of the single run, GiGPO's of the
    seeds."""
    single = result("alfworld")["success"]
    seeds = [measured["success"]["gigpo"] for measured in _read_seeds()]
    rows = []
    for kind in single["gigpo"][TASK_SETS[0]]["by_type"]:
        games = sum(single["gigpo"][split]["by_type"][kind]["tasks"] for split in TASK_SETS)
        shares = [percent(_share_of_type(single[name], kind), 0) for name in ("warm_start", *METHODS)]
        others = ", ".join(percent(_share_of_type(task_sets, kind), 0) for task_sets in seeds)
        rows.append([f"`{kind}`", f"{games}", *(f"{share} %" for share in shares), f"{others} %"])
    return table(
        ("type", "games", "after imitation", *METHODS.values(), "GiGPO of the seeds below, 75,000 steps"), rows
    )


def _share_of_type(task_sets: dict[str, Any], kind: str) -> float:
    cases = [task_sets[split]["by_type"][kind] for split in TASK_SETS]
    return float(sum(case["success"] * case["tasks"] for case in cases) / sum(case["tasks"] for case in cases))


def _read_seeds() -> list[dict[str, Any]]:
    """The records that hold all three methods; those of others stand in the pooled tables only."""
    files = sorted((RESULTS / "alfworld_seeds").glob("observation_seed_*.json"))
    records = [result(f"alfworld_seeds/{path.stem}") for path in files]
    return [record for record in records if METHODS.keys() <= record["methods"].keys()]


def alfworld_over_seeds() -> str:
    """Success of the pretrained model over seeds, by number of environment steps and method."""
    measured = result("alfworld_pooled")
    start = ["0", "after imitation", *_seed_cells(measured["after_imitation"])]
    return table(("environment steps", "method", *POOLED, "seeds"), [start, *_list_marks(measured)])


def scratch_over_seeds() -> str:
    """The same of the model made from scratch, all of whose seeds go on from one start; then at temperature 1."""
    measured = _leave_out_variants(result("alfworld_scratch_pooled"))
    last, warmer = measured["marks"][-1], measured["sampled"]
    temperature = f"temperature {warmer['temperature']:g}"
    sampled = [
        [f"{last['steps']:,}, {temperature}", NAMES[method], *_seed_cells(case)]
        for method, case in warmer["methods"].items()
    ]
    starts = [
        _describe_one_start("0", measured["after_imitation"]),
        _describe_one_start(f"0, {temperature}", warmer["after_imitation"]),
    ]
    rows = [starts[0], *_list_marks(measured), starts[1], *sampled]
    return table(("environment steps", "method", *POOLED, "seeds"), rows)


def _describe_one_start(steps: str, case: dict[str, Any]) -> list[str]:
    """The row of a start that all seeds go on from: it has no spread over seeds."""
    shares = (f"{percent(case[task_set]['value'])} %" for task_set in POOLED)
    return [steps, "after imitation, one start for all", *shares, ""]


def _list_marks(measured: dict[str, Any]) -> list[list[str]]:
    """A row for each method at each mark."""
    return [
        [f"{mark['steps']:,}", NAMES[method], *_seed_cells(case)]
        for mark in measured["marks"]
        for method, case in mark["methods"].items()
    ]


def _seed_cells(case: dict[str, Any]) -> list[str]:
    return [*(_share_over_seeds(case[task_set]) for task_set in POOLED), _list_seeds(case["seeds"])]


def _share_over_seeds(case: dict[str, Any]) -> str:
    """An interquartile mean with its interval; without one, what the seeds had."""
    if case["interval"] is None:
        return f"{', '.join(percent(share) for share in case['by_seed'])} %"
    return f"{percent(case['value'])} % ({interval(case['interval'])})"


def alfworld_comparisons() -> str:
    """Each two methods: differences by seed, and the probability that a run is better than one of the other.

    Task sets stand by themselves at the last mark only; too few seeds for an interval have their differences and no
    more.
    """
    marks = result("alfworld_pooled")["marks"]
    rows = [
        [f"{mark['steps']:,}", _name_pair(pair), task_set, *_gap_cells(pair[task_set])]
        for mark in marks
        for pair in mark["comparisons"]
        for task_set in POOLED
        if task_set == "both" or (mark is marks[-1] and pair[task_set]["difference"]["interval"])
    ]
    head = ("environment steps", *COMPARISON)
    if not any(row[-1] for row in rows):  # too few seeds for probabilities
        head, rows = head[:-1], [row[:-1] for row in rows]
    return table(head, rows)


def scratch_comparisons() -> str:
    """The same of the model made from scratch, at the last mark: by task set, and all games at temperature 1."""
    measured = _leave_out_variants(result("alfworld_scratch_pooled"))
    rows = [
        [f"{measured['temperature']}", _name_pair(pair), task_set, *_gap_cells(pair[task_set])]
        for pair in measured["marks"][-1]["comparisons"]
        for task_set in POOLED
    ]
    rows += [
        [f"{measured['sampled']['temperature']}", _name_pair(pair), "both", *_gap_cells(pair["both"])]
        for pair in measured["sampled"]["comparisons"]
    ]
    return table(("temperature", *COMPARISON), rows)


def _leave_out_variants(measured: dict[str, Any]) -> dict[str, Any]:
    """The same result without the methods that have other settings than their own."""

    def keep(case: dict[str, Any]) -> dict[str, Any]:
        methods = {method: scores for method, scores in case["methods"].items() if method not in measured["variants"]}
        pairs = [pair for pair in case["comparisons"] if methods.keys() >= {pair["first"], pair["second"]}]
        return {**case, "methods": methods, "comparisons": pairs}

    return {**measured, "marks": [keep(mark) for mark in measured["marks"]], "sampled": keep(measured["sampled"])}


def scratch_variants() -> str:
    """Methods with other settings, all games at the last mark: beside the method as it is, and beside GRPO."""
    measured = result("alfworld_scratch_pooled")
    cases = {measured["temperature"]: measured["marks"][-1], measured["sampled"]["temperature"]: measured["sampled"]}
    rows = []
    for variant, method in measured["variants"].items():
        for temperature, case in cases.items():
            pairs = {pair["second"]: pair for pair in case["comparisons"] if pair["first"] == variant}
            if method not in pairs:
                continue  # it was not measured as it is
            more, by_seed, _ = _gap_cells(pairs[method]["both"])
            share = _share_over_seeds(case["methods"][variant]["both"])
            over_grpo, *_ = _gap_cells(pairs["grpo"]["both"])
            rows.append([NAMES[variant], f"{temperature}", share, NAMES[method], more, by_seed, over_grpo])
    head = ("variant", "temperature", "all games", "of", "more than it, points", "by seed", "more than GRPO, points")
    return table(head, rows)


def scratch_training() -> str:
    """Success on training games over the second half of the steps, sampled at temperature 1."""
    rows = []
    for method, case in result("alfworld_scratch_pooled")["training"].items():
        more, by_seed, _ = _gap_cells(case["over_grpo"]) if "over_grpo" in case else ("", "", "")
        rows.append([NAMES[method], _share_over_seeds(case), more, by_seed])
    return table(("method", "success while training", "more than GRPO, points", "by seed"), rows)


def _name_pair(pair: dict[str, Any]) -> str:
    return f"{NAMES[pair['first']]} over {NAMES[pair['second']]}"


def _gap_cells(case: dict[str, Any]) -> list[str]:
    more, better = case["difference"], case["improvement"]
    by_seed = ", ".join(_points(gap) for gap in more["by_seed"])
    if more["interval"] is None:
        return [_points(more["value"]), by_seed, ""]
    low, high = better["interval"]
    ends = " to ".join(_points(end) for end in more["interval"])
    # Where no run of one is below any of the other, every resample says so too: an interval would claim certainty.
    chance = f"{better['value']:.2f}" + (f" ({low:.2f} to {high:.2f})" if low < high else " (all pairs)")
    return [f"{_points(more['value'])} ({ends})", by_seed, chance]


def _list_seeds(seeds: Sequence[int]) -> str:
    return ", ".join(map(str, seeds))


def _points(share: float) -> str:
    return f"{100 * share:+.1f}"
