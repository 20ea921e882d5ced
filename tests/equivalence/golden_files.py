"""Goldens of the examples: what each comes to, how that is written down, and how a run is held against it.

A golden names tables, columns, metrics and tensors. What it names must be there and be the same; what a run has besides
(a column that was added since) is no difference.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import platform
import subprocess
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.equivalence.example_runs import EXAMPLES, PACKAGES, content_of, name_of, overrides_of

FOLDER = Path(__file__).parent / "goldens"
COMMAND = "python -m tests.equivalence.make_goldens"
TOLERANCE = 1e-3
"""Largest relative difference between norms of weights on two machines; goldens/README.md says what was measured."""
OPTIMIZER_TOLERANCE = 0.05
"""The same for the optimizer's tensors, which are sums of gradients that nearly cancel."""

WITH_SINGULAR_VALUES = ("methods/verl",)
"""Examples by name that write down singular values: on two processors with equal torch these may differ in a bit."""
WITHOUT_GOLDEN = {
    "textworld_express": "every Java virtual machine draws other gold paths, which its warm start imitates",
}
"""Examples that have no golden, by name, and why; the test holds each reason against what happens."""


def golden_path(example: Path) -> Path:
    """Where the golden of an example lies."""
    return FOLDER / f"{name_of(example)}.json"


def describe_machine(example: Path) -> dict[str, str]:
    """What decides over the last bits of a sum: two machines of the same description compute the same weights."""
    singular = {"singular_values": _digest_singular_values()} if name_of(example) in WITH_SINGULAR_VALUES else {}
    return {
        **singular,
        "torch": torch.__version__,
        "transformers": importlib.metadata.version("transformers"),
        "kernels": _digest_kernels(),
        "arch": platform.machine(),
    }


@cache
def _digest_kernels() -> str:
    """What the kernels of torch and numpy make of fixed numbers, to the last bit: they are chosen by the processor."""
    random = np.random.default_rng(0)
    rows, square = random.normal(size=(173, 48)), random.normal(size=(48, 96))
    x, weight = torch.tensor(rows, dtype=torch.float32), torch.tensor(square, dtype=torch.float32, requires_grad=True)
    probabilities = torch.nn.functional.silu(x @ weight).softmax(-1)
    probabilities.log().pow(2).sum().backward()
    heads = x.view(1, 173, 6, 8).transpose(1, 2)
    attended = torch.nn.functional.scaled_dot_product_attention(heads, heads, heads)
    computed = [probabilities, weight.grad, attended, torch.nn.functional.layer_norm(x, (48,)), x.exp()]
    arrays = [each.detach().numpy() for each in computed if each is not None]
    arrays += [np.exp(rows), np.log(np.abs(rows)), rows @ square, rows.sum(0)]
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:12]


@cache
def _digest_singular_values() -> str:
    """Singular values of a fixed matrix, to the last bit: numpy's library chooses its sums by the processor's model."""
    states = np.random.default_rng(0).normal(size=(24, 32))
    return hashlib.sha256(np.linalg.svd(states, compute_uv=False).tobytes()).hexdigest()[:12]


def describe_world(example: Path) -> dict[str, str]:
    """The package that an example's tasks come from, with its version: another version may have other tasks."""
    package = PACKAGES.get(content_of(example)["env"]["kind"])
    names = _distributions().get(package, []) if package else []
    return {name: importlib.metadata.version(name) for name in sorted(set(names))}


def write_golden(example: Path, digests: Mapping[str, Any]) -> None:
    """Write what an example came to here, and how it was made."""
    made = {
        "command": f"{COMMAND} {name_of(example)}",
        "commit": _commit(),
        "machine": describe_machine(example),
        "world": describe_world(example),
        "overrides": overrides_of(example),
    }
    path = golden_path(example)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_format({"example": name_of(example), "made": made, **digests}) + "\n", encoding="utf-8")


def read_golden(example: Path) -> dict[str, Any]:
    """The golden of an example."""
    golden: dict[str, Any] = json.loads(golden_path(example).read_text(encoding="utf-8"))
    return golden


def find_differences(golden: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What a golden names and a run has otherwise, a line each: the update or checkpoint, the column or tensor."""
    return [
        f"{golden['example']}: {_place(path)} is {_value_at(now, path)!r}, not {wanted!r}"
        for part in ("journal", "state", "weights")
        for path, wanted in _leaves(golden[part], (part,))
        if _value_at(now, path) != wanted
    ]


def count_equally_sampled(golden: Mapping[str, Any], now: Mapping[str, Any]) -> int:
    """How many updates, from the first on, sampled the tokens that the golden's did.

    On another machine a log-prob's last bits may make a draw fall on the next token, and all that follows is other.
    """
    sampled, again = (each["journal"]["steps"]["response_ids"] for each in (golden, now))
    num = 0
    while str(num + 1) in sampled and sampled[str(num + 1)] == again.get(str(num + 1)):
        num += 1
    return num


def find_far_norms(golden: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The tensors whose norm is another than the golden's, whatever the machine, as far as the same was sampled."""
    differences, last = [], count_equally_sampled(golden, now)
    for path, wanted in _leaves(golden["weights"]["norms"], ("weights", "norms")):
        value = _value_at(now, path)
        if int(path[-1]) > last:
            continue
        tolerance = OPTIMIZER_TOLERANCE if path[2].startswith("optimizer") else TOLERANCE
        if value is None or abs(value - wanted) > tolerance * abs(wanted):
            differences.append(
                f"{golden['example']}: {_place(path)} is {value!r}, not {wanted!r} within {tolerance:g} of it"
            )
    return differences


def _leaves(tree: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(tree, Mapping):
        for name, below in tree.items():
            yield from _leaves(below, (*path, name))
    else:
        yield path, tree


def _value_at(tree: Any, path: tuple[str, ...]) -> Any:
    """What stands at a path; None where there is nothing."""
    for name in path:
        tree = tree.get(name) if isinstance(tree, Mapping) else None
    return tree


def _place(path: tuple[str, ...]) -> str:
    *names, last = path
    kind = "update" if path[0] == "journal" and last.isdigit() else "checkpoint" if last.isdigit() else ""
    return f"{kind} {int(last)}, {' / '.join(names)}" if kind else " / ".join(path)


def _format(value: Any, indent: str = "") -> str:
    """JSON in which a mapping or list of plain values takes one line."""
    if not isinstance(value, Mapping) or not any(isinstance(below, Mapping) for below in value.values()):
        plain = not isinstance(value, tuple) or len(json.dumps(value)) < 100
        return json.dumps(value) if plain else json.dumps(value, indent=2).replace("\n", f"\n{indent}")
    lines = [f"{indent}  {json.dumps(name)}: {_format(below, indent + '  ')}" for name, below in value.items()]
    return "{\n" + ",\n".join(lines) + f"\n{indent}}}"


@cache
def _distributions() -> Mapping[str, list[str]]:
    return importlib.metadata.packages_distributions()


def _commit() -> str:
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--exclude=*"],
        cwd=EXAMPLES,
        capture_output=True,
        text=True,
        check=False,
    )
    return described.stdout.strip() or "unknown"
