"""Effect of a penalty for every invalid action on advantages, on recorded ALFWorld rollouts.

    python -m benchmarks.refused_penalty [--write benchmarks/results/refused_penalty.json]

The rollouts are those of the first update of `benchmarks.alfworld`: 16 games, 8 rollouts each by SmolLM2-135M-Instruct
after imitation, with prompts that list no actions. `refused` is the penalty of that training: 0.1 off when the game
answered "Nothing happens.", and off the few responses that were cut off. `released` is that of the GiGPO and HGPO
releases: 0.1 off malformed responses only, which here are those that were cut off.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.result_file import write_result
from groupwise import methods
from groupwise.data.step_table import StepTable
from groupwise.store.formats import open_rollouts

ROLLOUTS = Path(__file__).parent / "results" / "alfworld_first_update.jsonl.gz"
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "grpo": ("grpo", {}),
    "gigpo, refused": ("gigpo", {"refused_penalty": 0.1}),
    "gigpo, released": ("gigpo", {}),
    "gigpo, none": ("gigpo", {"invalid_penalty": 0.0}),
    "hgpo, refused": ("hgpo", {"refused_penalty": 0.1}),
    "hgpo, released": ("hgpo", {}),
    "hgpo, none": ("hgpo", {"invalid_penalty": 0.0}),
}
VERBS = ("go", "take", "move", "use")


def rollouts() -> tuple[StepTable, np.ndarray]:
    """The recorded steps, and the verb of each command."""
    (chunk,) = open_rollouts(ROLLOUTS).chunks()
    # The file is older than the two columns. A response was the bare command, malformed only where it was cut off;
    # every other step that is not valid was refused.
    columns = dict(chunk.columns)
    cut, valid = np.array(columns["cut"]), np.array(columns.pop("valid"))
    table = StepTable.from_columns(**columns, well_formed=~cut, accepted=valid | cut)
    return table, np.array([str(action).partition(" ")[0] for action in table.column("action")])


def measure_credit(table: StepTable, verb: np.ndarray, name: str, options: dict[str, Any]) -> dict[str, Any]:
    """Mean advantage of the steps of failed rollouts and of some commands; its fraction in groups without success."""
    credit = methods.build(name, **options).advantage(table).values
    is_valid, has_won = table.column("valid").astype(bool), table.episode_return > 0
    without_success = ~np.isin(table.task, table.task[has_won])
    return {
        "invalid_lost": float(credit[~is_valid & ~has_won].mean()),
        "valid_lost": float(credit[is_valid & ~has_won].mean()),
        "in_groups_without_success": float(np.abs(credit[without_success]).sum() / np.abs(credit).sum()),
        "by_verb": {each: float(credit[verb == each].mean()) for each in VERBS},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, help="write the result as JSON")
    options = parser.parse_args()
    table, verb = rollouts()
    credit = {name: measure_credit(table, verb, *method) for name, method in METHODS.items()}
    result = {
        "command": "python -m benchmarks.refused_penalty",
        "steps": len(verb),
        "malformed": int(np.sum(~table.column("well_formed"))),
        "refused": int(np.sum(~table.column("accepted"))),
        "credit": credit,
    }
    print(json.dumps(result, indent=2))
    write_result(result, options.write)


if __name__ == "__main__":
    main()
