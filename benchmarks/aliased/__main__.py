"""Where does HGPO's depth pay? Its credit against true advantages, over the dial of `aliased`.

    python -m benchmarks.aliased [--tasks 20] [--rollouts 1024] [--seed 0] [--sizes] [--workers 1] [--write FILE]
    python -m benchmarks.aliased --plot benchmarks/results/aliased.json    writes docs/images/aliased.svg from a result

Policies are tables, so that the advantage of every step is exact; credit is that of the library's own parts. Whatever
is random follows from the seed: the same command gives the same numbers. `python docs/build_results.py` then writes
the tables of benchmarks/pages/aliased.md.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.aliased.dial import GAMMA, ROUGHNESS, SKILL, SPARE_STEPS, Setting, list_settings
from benchmarks.aliased.measure import Measured, measure_setting
from benchmarks.aliased.plot import draw_picture
from benchmarks.aliased.summary import draw_weights, list_slices, pool_gains, summarise_setting

PICTURE = Path("docs/images/aliased.svg")


def study(settings: Sequence[Setting], *, tasks: int, rollouts: int, seed: int, workers: int) -> dict[str, Any]:
    """Measure settings, each by itself, and pool those of every slice."""
    measure = partial(measure_setting, tasks=tasks, rollouts=rollouts, seed=seed)
    all_measured: list[Measured] = []
    with ProcessPoolExecutor(workers) as pool:
        for measured in pool.map(measure, settings) if workers > 1 else map(measure, settings):
            all_measured.append(measured)
            sys.stderr.write(f"{len(all_measured)} of {len(settings)}: {measured.setting}\n")
    weights = draw_weights(tasks, seed)
    slices = {
        name: common
        for name, common in list_slices().items()
        if any(common.items() <= setting.to_json().items() for setting in settings)
    }
    return {
        "command": f"python -m benchmarks.aliased --tasks {tasks} --rollouts {rollouts} --seed {seed}",
        "about": {
            "worlds of a setting": tasks,
            "rollouts at each": rollouts,
            "seed": seed,
            "gamma": GAMMA,
            "skill": SKILL,
            "roughness": ROUGHNESS,
            "spare steps": SPARE_STEPS,
        },
        "settings": [summarise_setting(measured, weights) for measured in all_measured],
        "pooled": {name: pool_gains(all_measured, common, weights) for name, common in slices.items()},
    }


def to_text(result: dict[str, Any]) -> str:
    """A result as JSON with a line a setting and a slice: it has some 30,000 numbers."""
    settings = ",\n".join(json.dumps(setting) for setting in result["settings"])
    pooled = ",\n".join(f"{json.dumps(name)}: {json.dumps(gains)}" for name, gains in result["pooled"].items())
    about = json.dumps({"command": result["command"], "about": result["about"]})[:-1]
    return f'{about},\n"settings": [\n{settings}\n],\n"pooled": {{\n{pooled}\n}}}}\n'


def main(arguments: list[str] | None = None) -> None:
    """Measure, or draw what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=20)
    parser.add_argument("--rollouts", type=int, default=1024)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sizes", action="store_true", help="the settings of the group sizes alone")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--plot", type=Path, help="a result to draw, in the place of measuring")
    options = parser.parse_args(arguments)
    if options.plot:
        PICTURE.write_text(draw_picture(json.loads(options.plot.read_text(encoding="utf-8"))), encoding="utf-8")
        return
    settings = [
        setting for setting in list_settings() if not options.sizes or (setting.passages == 1 and not setting.one_reply)
    ]
    result = study(settings, tasks=options.tasks, rollouts=options.rollouts, seed=options.seed, workers=options.workers)
    result["command"] += " --sizes" if options.sizes else ""
    if options.write:
        options.write.parent.mkdir(parents=True, exist_ok=True)
        options.write.write_text(to_text(result), encoding="utf-8")


if __name__ == "__main__":
    main()
