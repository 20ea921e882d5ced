"""Every choice that the measurement makes, in one place.

What a small model can use within minutes decides most of them. Prompts are the whole dialogue so far without the list
of possible commands: each prompt continues the one before, so that engine and learner compute a step's new tokens once,
where the papers' frame (last two steps, list of commands) computes some 350 tokens anew at every step. Responses are
the bare command. All methods share one loss (clip 0.2, dual clip 3, mean over tokens, no KL, no entropy bonus) and one
reward, so that they differ in credit alone. GiGPO's and HGPO's penalty for malformed responses is off; a bare command
is malformed only where it is cut off. So is any penalty for commands that the game refuses, which their releases do not
have: without a list of possible commands, a third of those that a searching model tries are impossible, and in groups
without success the penalty, divided by its own deviation, is all that is left to learn from. A first run had one (0.1,
taken for the published penalty), and both were at 0 % after one update.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal

from groupwise.system.errors import ConfigError, nearest

METHODS = ("grpo", "gigpo", "hgpo")
SPLITS = {"valid_seen": "validation", "valid_unseen": "test"}
"""ALFWorld's name of each task set that is measured, and ours."""
Key = Literal["observation", "situation", "unnumbered"]
"""What makes two steps comparable: what the game said last, as in GiGPO's and HGPO's releases; what is visible; or what
the game said last without the numbers of things (`unnumbered.py`)."""
UNNUMBERED = "benchmarks.alfworld.unnumbered:Unnumbered"
Frame = Literal["dialogue", "published"]
FRAMES: Mapping[Frame, Mapping[str, Any]] = {
    "dialogue": {"max_tokens": 20, "history": {"kind": "full"}},
    "published": {
        "max_tokens": 64,
        "history": {"kind": "window", "steps": 2},
        "template": {"kind": "published_template"},
        "action_parser": {"kind": "tagged"},
    },
}
"""How a step is put to the model: as the whole dialogue, answered by a command alone; or as the papers do, one message
with the last two steps and the possible commands, answered by a thought and a command between tags. The teacher's
thoughts are empty; what is left of 64 tokens is room for the model's own, where the papers allow 512."""

ENGINE: Mapping[str, Any] = {"precision": "bfloat16", "decoding": "auto", "memory": 0.12}
"""The section [engine], on a GPU: three methods share its memory, 140 rollouts of some 3,000 tokens each."""
LEARNER: Mapping[str, Any] = {"precision": "bfloat16"}
"""What [training.learner] has on a GPU beside the rest."""
CREDIT: Mapping[str, Mapping[str, Any]] = {
    name: {"invalid_penalty": 0.0} for name in ("gigpo", "hgpo", "gagpo", "hgae", "shrunk_hgae")
}
"""What methods are given beside the loss."""
LOSS: Mapping[str, Any] = {
    "surrogate": {"kind": "clip", "dual": 3.0},
    "aggregate": {"kind": "token_mean"},
    "penalties": [],
}
LOSS_OF: Mapping[str, Mapping[str, Any]] = {
    name: {**LOSS, "ratio": {"kind": "token_ratio"}} for name in ("gagpo", "hgae", "shrunk_hgae")
}
"""The same loss for methods that have another ratio of their own: methods are compared by their credit alone."""
TINY: Mapping[str, Any] = {"kind": "tiny", "hidden": 32, "layers": 2, "heads": 2, "context": 4096}
"""The model named `tiny`: to try the measurement itself."""
PAPERS: Mapping[str, Mapping[str, float]] = {
    "grpo": {"valid_seen": 0.728, "valid_unseen": 0.701},
    "gigpo": {"valid_seen": 0.9016, "valid_unseen": 0.8476},
    "hgpo": {"valid_seen": 0.9277, "valid_unseen": 0.9016},
}
"""Success of Qwen2.5-1.5B-Instruct after 160 updates of 16 tasks x 8 rollouts, history of two steps, in the table of
HGPO's paper (2026, arXiv:2602.22817)."""


TEMPERATURES = (0.4, 1.0)
"""Of evaluation: that of the papers, which findings are stated at, and that of training, which sharpens nothing."""


@dataclass(frozen=True)
class Sizes:
    """How much of everything."""

    warm_games: int = 700
    """Training games that the teacher plays, once each; the task set's order balances task types. With 400 of them a
    model of 135M solves next to nothing, with 2,000 and two passes nine games in ten, which leaves little to
    compare."""
    warm_epochs: int = 1
    """Passes over its steps."""
    warm_rate: float = 3e-4
    """Largest step size of the warm start."""
    warm_tokens: int = 8192
    """Distinct tokens of an optimizer step of the warm start: some ten games."""
    noise: float = 0.05
    """Share of steps at which the teacher strays, so that it shows how to go on after a mistake."""
    tasks: int = 16
    """Tasks of an update."""
    rollouts: int = 8
    """Rollouts at each."""
    max_steps: int = 30
    """Steps of a training rollout: the teacher takes 26 at most, and hopeless rollouts cost less than with 50."""
    learning_rate: float = 3e-5
    """Step size of AdamW, constant: thirty times the papers', for a model a tenth the size and far fewer updates."""
    minibatches: int = 4
    """Optimizer steps of an update."""
    token_budget: int = 16384
    """Most distinct tokens in a micro-batch; a megabyte each, and three methods share a device."""
    mark: int = 15_000
    """Environment steps between marks, at which weights are kept, so that methods can be compared at equal steps."""
    compare_at: int = 75_000
    """Environment steps after which a method stops and is evaluated: the same for every seed, so that seeds can be
    pooled. A run that time cuts off before is evaluated at the last mark that all its methods have reached."""
    evaluation_tasks: int = 1000
    """Most games of each task set; all of them, 140 and 134."""
    evaluation_steps: int = 50
    """Steps of a rollout in evaluation, as everybody has it."""
    evaluation_seeds: int = 1
    """Most repetitions of the last evaluation, as time allows. One, since seeds of training differ far more."""


FULL = Sizes()
SMALL = Sizes(
    warm_games=12,
    warm_epochs=1,
    warm_rate=3e-3,
    warm_tokens=2048,
    tasks=2,
    rollouts=2,
    max_steps=4,
    learning_rate=1e-3,
    minibatches=1,
    token_budget=4096,
    mark=12,
    compare_at=32,
    evaluation_tasks=2,
    evaluation_steps=4,
    evaluation_seeds=1,
)
"""To try the measurement itself."""
TWO_CORES = Sizes(
    warm_games=3553,
    warm_epochs=3,
    warm_rate=3e-3,
    warm_tokens=2048,
    learning_rate=5e-4,
    token_budget=8192,
    mark=30_000,
    compare_at=60_000,
)
"""For the model named `scratch`: all training games, where a pretrained model needs a fifth of them once."""


@dataclass(frozen=True)
class Variant:
    """A method with other settings than it has by itself, under a name of its own."""

    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    """What the method is given beside, or in place of, what `CREDIT` says."""
    key: Key | None = None
    """What makes two steps comparable; None = as the measurement has it."""
    loss: Mapping[str, Any] | None = None
    """Its loss; None = that of all methods."""


VARIANTS: Mapping[str, Variant] = {
    "gigpo_situation": Variant("gigpo", key="situation"),
    "hgpo_situation": Variant("hgpo", key="situation"),
    "hgpo_depth_1": Variant("hgpo", {"depth": 1}),
    "hgpo_depth_4": Variant("hgpo", {"depth": 4}),
    "gigpo_released": Variant("gigpo", {"reference": True, "invalid_penalty": 0.1}),
    "hgpo_released": Variant("hgpo", {"reference": True, "invalid_penalty": 0.1}),
    "grpo_reference": Variant("grpo", {"average": "step", "alone": "raw"}),
    "gigpo_reference": Variant("gigpo", {"reference": True}),
    "hgpo_reference": Variant("hgpo", {"reference": True}),
    "hgpo_reference_depth_4": Variant("hgpo", {"reference": True, "depth": 4}),
    "gigpo_unnumbered": Variant("gigpo", {"reference": True}, key="unnumbered"),
    "hgpo_unnumbered": Variant("hgpo", {"reference": True}, key="unnumbered"),
    "hgpo_unnumbered_depth_4": Variant("hgpo", {"reference": True, "depth": 4}, key="unnumbered"),
    "shrunk_hgae_lam": Variant("shrunk_hgae", {"lam": 0.95}),
    "shrunk_hgae_step_ratio": Variant("shrunk_hgae", loss=LOSS),
}
"""Methods beside the methods, by name. `released` has the published code's conventions and its penalty for malformed
responses; `reference` has its conventions without that penalty, and `unnumbered` the same with another key; `lam` has
GAGPO's lambda, so that a step is credited with surprises long after it too; `step_ratio` keeps the method's own ratio,
one for all tokens of a step, where all others have one a token."""


@dataclass(frozen=True)
class Scratch:
    """How the model named `scratch` learns before it is reinforced: fresh weights, small enough for two cores.

    It has never seen language, so that it also learns to say what it is shown, which teaches it to copy names, and it
    is shown more. After that alone, reinforcement gained little within 60,000 steps. So the teacher shows it some more
    games in which it does anything possible now and then: what is good among that is left to reinforcement, as in the
    demo.
    """

    hidden: int = 96
    """Width; with the rest 383,040 weights."""
    layers: int = 3
    heads: int = 4
    context: int = 4096
    observation_weight: float = 0.3
    """What a word of an observation counts beside one of a command."""
    searches: int = 4
    """How often the teacher plays each game, each time with other detours."""
    noisy_games: int = 2000
    """Games that it then plays noisily, once each; they are imitated once."""
    expert_noise: float = 0.4
    """How likely it is, at a step of its plan there, to do anything possible instead: in all, three steps of ten. After
    a detour that changed something it takes the place of its errand for known, so that it searches less than before."""
    noisy_rate: float = 1e-3
    """Largest step size while they are imitated."""


SCRATCH = Scratch()
MADE_HERE: Mapping[str, Mapping[str, Any]] = {
    "tiny": TINY,
    "scratch": {"kind": "tiny", **{name: getattr(SCRATCH, name) for name in ("hidden", "layers", "heads", "context")}},
}
"""Models that are no folder and no hub's."""


def change_sizes(sizes: Sizes, changes: Sequence[str]) -> Sizes:
    """Sizes with some set to other values, each given as `name=value`."""
    values = dict(change.split("=", 1) for change in changes)
    known = {field.name for field in fields(Sizes)}
    for name in values.keys() - known:
        raise ConfigError(f"--set: there is no size {name!r}; {nearest(name, known)}")
    return replace(sizes, **{name: type(getattr(sizes, name))(value) for name, value in values.items()})


@dataclass(frozen=True)
class Measurement:
    """One measurement: all methods from one start."""

    sizes: Sizes
    """How much of everything."""
    seed: int = 0
    """Seed of the start, of the teacher's detours and of every run."""
    key: Key = "observation"
    """What makes two steps comparable."""
    frame: Frame = "dialogue"
    """How a step is put to the model."""
    is_from_scratch: bool = False
    """Whether the model is `scratch`, which is shown more and also learns to say what it is shown."""
    start: str | None = None
    """Digest of the weights that all seeds go on from; None = each seed makes its own start."""


def settings_hash(measurement: Measurement, *, method: str, on_gpu: bool) -> str:
    """A digest of what decides over a method's numbers but its seed: seeds are pooled only where it is equal."""
    content = run_settings("", "", replace(measurement, seed=0), method=method, on_gpu=on_gpu)
    del content["threads"]  # of the machine, not of the measurement
    runs = {method: content}
    scratch = [asdict(SCRATCH)] if measurement.is_from_scratch else []
    given = [measurement.start] if measurement.start else []
    written = json.dumps([asdict(measurement.sizes), runs, TEMPERATURES, *scratch, *given], sort_keys=True)
    return hashlib.sha256(written.encode()).hexdigest()[:16]


def choose_key(measurement: Measurement, *, method: str) -> Key:
    """What makes two steps comparable for a method."""
    return VARIANTS.get(method, Variant(method)).key or measurement.key


def list_own_parts(measurement: Measurement, *, method: str) -> list[str]:
    """What a method has of its own beside its credit, as paths into the run file: GRPO has other values there."""
    from groupwise.training.config.run_file import decode_run

    mine, grpo = (
        decode_run(run_settings("tiny", "", measurement, method=name, on_gpu=False)).config()
        for name in (method, "grpo")
    )
    about_credit = ("made_by", "algorithm.advantage", "algorithm.token_credit", "env")  # of env, the key alone differs
    return [path for path in _list_differences(mine, grpo) if not path.startswith(about_credit)]


def _list_differences(first: Any, second: Any, path: str = "") -> list[str]:
    """Paths at which two nested mappings differ; of parts of another kind, that of the part."""
    are_mappings = isinstance(first, Mapping) and isinstance(second, Mapping)
    if not are_mappings or first.get("kind") != second.get("kind"):
        return [] if first == second else [path]
    return [
        difference
        for key in dict.fromkeys([*first, *second])
        for difference in _list_differences(first.get(key), second.get(key), f"{path}.{key}" if path else key)
    ]


def run_settings(model: str, games: str, measurement: Measurement, *, method: str, on_gpu: bool) -> dict[str, Any]:
    """The run of a method, as a run file would say it; the model is a folder, a hub's name, `tiny` or `scratch`."""
    sizes, variant = measurement.sizes, VARIANTS.get(method, Variant(method))
    credit = {**CREDIT.get(variant.method, {}), **variant.options}
    loss = variant.loss or LOSS_OF.get(variant.method, LOSS)
    learner = {
        "learning_rate": sizes.learning_rate,
        "minibatches": sizes.minibatches,
        "token_budget": sizes.token_budget,
        "betas": [0.9, 0.95],
        **(LEARNER if on_gpu else {}),
    }
    key = choose_key(measurement, method=method)
    env = {"kind": UNNUMBERED} if key == "unnumbered" else {"kind": "alfworld", "key": key}
    content: dict[str, Any] = {
        "seed": measurement.seed,
        "threads": 1 if measurement.is_from_scratch else max((os.cpu_count() or 1) // 4, 1),
        "algorithm": {"method": variant.method, **credit, "loss": dict(loss)},
        "env": {**env, "path": games, "max_steps": sizes.max_steps},
        "model": dict(MADE_HERE[model]) if model in MADE_HERE else {"kind": "pretrained", "path": model},
        "rollout": {**FRAMES[measurement.frame], "group_size": sizes.rollouts},
        "training": {"updates": 0, "tasks": sizes.tasks, "learner": learner},
        "evaluation": {"tasks": sizes.evaluation_tasks, "temperature": TEMPERATURES[0]},
    }
    return content | ({"engine": dict(ENGINE)} if on_gpu else {})
