"""Every run file of the examples as a run of a second: a tiny model, few tasks, two updates, all that it has in it.

What an example shows stays: its algorithm, environment, memory, plan, rewards, loss, warm start and evaluation. What it
costs goes: the model, the number of tasks, rollouts and updates. A publisher's files are replaced by a few of our own,
a server by one on this machine.
"""

from __future__ import annotations

import importlib.util
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from groupwise.envs.small.storefront import draw_catalogue
from groupwise.training.config.run_file import load_run, read_run_file
from groupwise.training.loop import train
from groupwise.training.open_run import open_run
from tests.unit.envs.alfworld_data import few_games
from tests.unit.envs.math_sets import gsm8k, write_lines
from tests.unit.envs.openenv_servers import server
from tests.unit.envs.shops import describe_item, item, publish
from tests.unit.rollout.fake_endpoint import serve

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = [path for path in sorted(EXAMPLES.rglob("*.toml")) if path.parent.name not in ("papers", "agents")]
"""All but the experiments of papers, which benchmarks/papers.py runs small, and agents: tests/end_to_end/test_agents.py
compares those with the built-in loop."""
UPDATES = 2
SMALL = (
    "device='cpu'",
    "threads=1",
    "model={kind='tiny', hidden=16, layers=1, heads=2}",
    "rollout.group_size=4",
    f"training.updates={UPDATES}",
    "training.tasks=4",
    "training.checkpoint_every=1",
    "evaluation.tasks=2",
    "evaluation.rollouts=1",
)
"""What makes a run small whatever it is."""
WARM = (
    "warm_start.tasks=60",
    "warm_start.epochs=6",
    "warm_start.learning_rate=2e-2",
    "warm_start.batch_tokens=256",
)
"""A warm start of half a second after which some rollouts succeed: where none does, all credit is 0."""
BY_HEART = (
    "model={kind='tiny', hidden=32, layers=1, heads=2}",
    "training.curriculum={kind='shuffled', first=4}",
    "warm_start.tasks=4",
    "warm_start.epochs=40",
    "warm_start.learning_rate=1e-2",
    "warm_start.batch_tokens=256",
)
"""A warm start on the very tasks that are trained on, where a tiny model solves no others."""
SUMS = ("env.num_terms=4", "rollout.max_tokens=24", "warm_start.epochs=90")
"""Shorter sums, known a little better."""
LISTS = ("env.num_offered=4", "env.list_length=2", "rollout.max_tokens=8")
"""Shorter lists."""
SHORT = ("rollout.max_tokens=8", "rewards=[{kind='environment'}, {kind='overlong', limit=8, buffer=7}]")
"""A charge for long responses, where a tiny model solves nothing at all: so rollouts still differ in what they earn."""
OWN: dict[str, tuple[str, ...]] = {
    "alfworld": (*BY_HEART, "warm_start.epochs=15", "env.max_steps=6", "rollout.max_tokens=6"),
    "babyai": ("warm_start.tasks=20", "env.max_steps=8"),
    "bfcl": ("warm_start.tasks=8", "env.max_steps=4", "rollout.max_tokens=8"),
    "countdown": BY_HEART,
    "frozen_lake": ("env.kwargs={is_slippery=false, desc=['SF', 'FG']}",),
    "gem_minesweeper": ("rollout.group_size=8",),
    "gsm8k": (
        *BY_HEART,
        "warm_start.epochs=60",
        "rollout.max_tokens=12",
    ),  # the warm start is in the place of the pretrained model
    "household": (*SHORT, "warm_start.tasks=10", "env.max_steps=6"),
    "identity": ("rollout.group_size=16",),
    "judged_lookup": BY_HEART,
    "lookup": BY_HEART,
    "mixture": (*BY_HEART, "warm_start.epochs=30"),
    "own_questions": BY_HEART,
    "r3_chain_sum": (*BY_HEART, "env.options={min_terms=2, max_terms=2, max_digits=1}", "env.num_train=20"),
    "r3_countdown": (*BY_HEART, *SHORT),
    "r3_household": (*SHORT, "warm_start.tasks=20", "env.max_steps=6"),
    "reasoning_chain_sum": (*BY_HEART, "env.num_train=30"),
    "reasoning_gcd": (*BY_HEART, "env.options={max_value=12}", "env.num_train=30"),
    "methods/hdpo": (*BY_HEART, "warm_start.epochs=60", "rollout.group_size=8"),
    "methods/after_polychromic": ("rollout.group_size=8",),
    "methods/after_webstar": (*BY_HEART, *SHORT, "warm_start.epochs=60", "env.max_steps=6"),
    "methods/mc_grpo": ("rollout.group_size=5",),  # an odd number
    "methods/prorag": BY_HEART,
    "scienceworld": ("warm_start.tasks=2", "training.tasks=2", "evaluation.tasks=1", "env.max_steps=3"),
    "search_qa": (*BY_HEART, "warm_start.epochs=20"),
    "storefront": (*BY_HEART, "warm_start.epochs=15", "env.max_steps=5"),
    "textworld_coin": (*BY_HEART, "env.num_train=2", "env.num_test=2", "env.level=1"),
    "textworld_cooking": (*BY_HEART, "warm_start.epochs=10", "env.num_train=2", "env.num_test=2", "env.max_steps=6"),
    "textworld_express": ("warm_start.tasks=10", "env.max_steps=8"),
    "webshop": (*SHORT, "env.num_test=4", "env.num_validation=4", "env.max_steps=4"),
}
"""What single examples need besides, by name."""
PACKAGES = {
    "alfworld": "textworld",
    "babyai": "minigrid",
    "bfcl": "bfcl_eval",
    "gem": "gem",
    "gymnasium": "gymnasium",
    "math": "math_verify",
    "openenv": "openenv",
    "reasoning_gym": "reasoning_gym",
    "scienceworld": "scienceworld",
    "search_qa": "bm25s",
    "sokoban": "gym_sokoban",
    "storefront": "bm25s",
    "textarena": "textarena",
    "textworld": "textworld",
    "textworld_express": "textworld_express",
    "webshop": "bm25s",
}
"""What the environment of an example needs beside groupwise, by its kind."""
ON_JAVA = ("scienceworld", "textworld_express")


def name_of(path: Path) -> str:
    """What an example is called: its place below examples/, without its ending."""
    return path.relative_to(EXAMPLES).with_suffix("").as_posix()


def content_of(path: Path) -> dict[str, Any]:
    """What a run file says, with the file that it extends."""
    return read_run_file(path).content


def find_obstacle(path: Path) -> str | None:
    """Why an example cannot run on this machine; None where it can."""
    kind = content_of(path)["env"]["kind"]
    package = PACKAGES.get(kind)
    if package and importlib.util.find_spec(package) is None:
        return f"the package {package} is not installed"
    if kind in ON_JAVA and shutil.which("java") is None:
        return "there is no Java"
    return None


def play_example(path: Path, folder: Path) -> None:
    """Run an example, small, in a folder that is new or empty."""
    content = content_of(path)
    judge = content["algorithm"].get("judge")
    asks_server = isinstance(judge, dict) and judge["kind"] == "endpoint_judge"
    with (
        server(sessions=64) if content["env"]["kind"] == "openenv" else nullcontext() as running,
        serve() if asks_server else nullcontext() as judging,
    ):
        where = [f"env.url={running.url}"] if running else []
        where += [f"algorithm.judge.url={judging.url}"] if judging else []
        settings = [*overrides_of(path), *_own_files(path, folder / "data"), *where]
        train(open_run(load_run(path, overrides=settings), folder))


def overrides_of(path: Path) -> tuple[str, ...]:
    """What is changed in an example so that it is small, but for where its files lie on this machine."""
    content, name = content_of(path), name_of(path)
    changes = [*SMALL]
    if content["rollout"].get("workers") and content["env"]["kind"] not in (*ON_JAVA, "openenv"):
        changes.append("rollout.workers=0")  # the same numbers, and no processes to wait for
    if "warm_start" in content:
        changes += WARM
    if content["env"]["kind"] == "gridworld":
        changes += ["env.size=3", "env.num_holes=1", "env.max_steps=6"]
    if content["algorithm"]["method"].startswith("r3"):
        changes.append("training.curriculum={kind='shuffled', first=4}")  # tasks come round: there is a past to replay
    if content["env"]["kind"] == "worked_sums":
        changes += [*BY_HEART, *SUMS]
    if content["env"]["kind"] == "ranked_lists":
        changes += [*BY_HEART, *LISTS]
    return (*changes, *OWN.get(name, ()))


def _own_files(path: Path, folder: Path) -> tuple[str, ...]:
    """Settings that put files of our own in the place of a publisher's."""
    kind = content_of(path)["env"]["kind"]
    if kind == "alfworld":
        return (f"env.path={few_games(folder)}",)
    if kind == "math":
        write_lines(folder / "train.jsonl", gsm8k(1, 4))
        write_lines(folder / "test.jsonl", gsm8k(100, 4))
        return (f"env.path={folder}",)
    if kind == "webshop":
        products = draw_catalogue(0, 20, 4).products
        publish(folder, [item(each) for each in products], {each.asin: describe_item(each) for each in products})
        return (f"env.path={folder}",)
    return ()
