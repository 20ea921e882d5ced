"""The run files of examples/papers with a small model, from training to the evaluation of the exported model.

    python -m benchmarks.papers --math FOLDER --write benchmarks/results/papers.json
    python -m benchmarks.papers hgpo_alfworld_1.5b --games json_2.1.1.tar.xz --vllm .vllm/bin/python

Each file is run as it is, but for the settings of `SMALL` and the data. The model has random weights, the shape of
Qwen2, and a byte-pair tokenizer made here. So its success says nothing.

ALFWorld's games are real: a few of them, unless --games names all. WebShop's catalogue is invented, in the publisher's
format, unless --webshop names the publisher's files. --math names a folder with MATH's training problems and the
benchmarks of R^3; without it, that run file is left out.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM
from typer.testing import CliRunner

from benchmarks.alfworld.games import unpack_games
from benchmarks.result_file import describe_command, write_result
from groupwise.cli.main import make_app
from groupwise.envs.part_queries import ask_vocabulary
from groupwise.envs.small.storefront import draw_catalogue
from groupwise.training.config.run_file import load_run, read_run_file
from groupwise.training.export import export_run
from groupwise.training.loop import train
from groupwise.training.open_run import open_run
from tests.unit.envs.shops import describe_item, item, publish
from tests.unit.rollout.chat_templates import make_tokenizer

ROOT = Path(__file__).parents[1]
PAPERS = ROOT / "examples" / "papers"
FILES = sorted((path.stem for path in PAPERS.glob("*.toml")), key=lambda name: (name.endswith("7b"), name))
GAMES = ROOT / "tests" / "data" / "alfworld_games.tar.xz"
BENCHMARKS = ("aime24", "math500", "amc23", "minerva_math", "olympiadbench")
"""The benchmarks of R^3's table 2, as files of `--math`."""
VOCABULARY = 2000
SHAPE: dict[str, Any] = {
    "hidden_size": 64,  # two heads of 32: vLLM on a CPU takes none that are smaller
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 4096,
}

SMALL = (
    "device=cpu",
    "threads=1",
    "training.updates=2",
    "training.tasks=2",
    "training.curriculum={kind='shuffled', first=2}",  # the second update has the tasks of the first
    "training.checkpoint_every=1",
    "training.learner.precision=float32",
    "training.learner.checkpoint_layers=false",
    "training.learner.token_budget=4096",
    "training.learner.minibatch_samples=8",
    "rollout.group_size=4",
    "rollout.max_tokens=40",
    "rollout.workers=0",
    "evaluation.every=0",
    "evaluation.max_tokens=48",
    "warm_start={tasks=8, epochs=12, learning_rate=3e-3, batch_tokens=2048}",  # so that responses have a form
)
"""What is smaller than in the run files, for all of them."""
SMALL_BY_ENV = {
    "alfworld": (
        "env.max_steps=4",
        "evaluation.task_sets=[{name='in-domain', split='validation', tasks=6}, "
        "{name='out-of-domain', split='test', tasks=6}]",
    ),
    "webshop": ("env.max_steps=4", "env.num_test=4", "evaluation.tasks=4"),
    "math": ("evaluation.tasks=20",),
}
"""What is smaller by environment. ALFWorld's two task sets are the columns of HGPO's table 1."""
TABLES = {
    "hgpo_alfworld_1.5b": "HGPO, table 1: success in-domain and out-of-domain, and by category",
    "hgpo_webshop_1.5b": "HGPO, table 1: score and success",
    "r3_deepscaler_1.5b": "R^3, table 2: pass@1, pass@16 and tokens by benchmark",
}
"""The evaluations that have the columns of a published table."""
SHOWN = (
    "rollout/return",
    "rollout/well_formed",
    "rollout/prompts_cut",
    "advantage/compared",
    "advantage/size",
    "shaping/groups",
    "hint/groups",
    "replay/rollouts",
    "learner/optimizer_steps",
    "learner/grad_norm",
    "weights/check_gap",
)
"""What is recorded of each update, if a run has it."""


def make_data(kind: str, folder: Path, options: argparse.Namespace) -> tuple[str, ...]:
    """The settings that name the data of an environment; what is not given is made in a folder."""
    if kind == "alfworld":
        return (f"env.path={unpack_games(options.games)}",)
    if kind == "webshop":
        # Without spaCy's model, the score reads titles word by word.
        tagger = () if importlib.util.find_spec("en_core_web_sm") else ("env.tagger=''",)
        if options.webshop:
            return (f"env.path={options.webshop}", *tagger)
        products = draw_catalogue(0, 40, 4).products
        publish(folder, [item(each) for each in products], {each.asin: describe_item(each) for each in products})
        return (f"env.path={folder}", *tagger)
    folder.mkdir()
    for name in BENCHMARKS:  # four problems of each, so that a small evaluation has all
        lines = (options.math / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
        (folder / f"{name}.jsonl").write_text("\n".join(lines[:4]) + "\n", encoding="utf-8")
    return f"env.path={options.math / 'math_train.json'}", f"env.test_path={folder}"


def write_model(folder: Path, words: Sequence[str], *, opens_thought: bool) -> None:
    """A model of Qwen2's shape with random weights, and a tokenizer that knows the words of the environment."""
    prompts = [path.read_text(encoding="utf-8") for path in sorted(PAPERS.parent.glob("prompts/*.txt"))]
    tokenizer = make_tokenizer("r1_distill" if opens_thought else "chatml", (*prompts, " ".join(words)), VOCABULARY)
    torch.manual_seed(0)
    ids: dict[str, Any] = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    config = Qwen2Config(**SHAPE, **ids, vocab_size=len(tokenizer), tie_word_embeddings=True, initializer_range=0.1)
    Qwen2ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def run_file(name: str, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Train, evaluate, export, and evaluate what was exported."""
    file = PAPERS / f"{name}.toml"
    kind = read_run_file(file).content["env"]["kind"]
    engine = f"{{kind='vllm', python='{options.vllm}'}}" if options.vllm else "{kind='local'}"
    small = (*SMALL, *SMALL_BY_ENV[kind], *make_data(kind, folder / "data", options), f"engine={engine}")
    write_model(folder / "model", ask_vocabulary(load_run(file, overrides=small).env), opens_thought=kind == "math")
    times = [perf_counter()]
    updates = train_small(file, (*small, f"model.path={folder / 'model'}"), folder / "run")
    times.append(perf_counter())
    evaluated = evaluate(folder / "run")
    times.append(perf_counter())
    exported = export_run(folder / "run", folder / "exported").folder
    start = [setting for setting in small if not setting.startswith("warm_start")]
    train_small(file, (*start, f"model.path={exported}", "training.updates=0"), folder / "again")
    of_exported = evaluate(folder / "again")
    times.append(perf_counter())
    stages = ("train", "evaluate", "export and evaluate")
    return {
        "file": f"examples/papers/{name}.toml",
        "engine": "vllm" if options.vllm else "local",
        "seconds": {stage: round(times[i + 1] - times[i], 1) for i, stage in enumerate(stages)},
        "updates": updates,
        "columns of": TABLES.get(name, ""),
        "evaluation": evaluated,
        "the exported model has the same": of_exported[1:] == evaluated[1:],
    }


def train_small(file: Path, settings: Sequence[str], folder: Path) -> dict[str, list[float]]:
    """Train, and return what each update did."""
    with open_run(load_run(file, overrides=settings), folder) as run:
        train(run)
        curves = {name: [value for _, value in run.journal.curve(name)] for name in SHOWN}
    return {name: values for name, values in curves.items() if values}


def evaluate(run: Path) -> list[str]:
    """What `groupwise evaluate` prints, line by line."""
    words = ["evaluate", str(run), "--seeds", "1", "--trust"]  # vLLM is a program that the run names
    printed = CliRunner().invoke(make_app(), words, catch_exceptions=False).stdout
    return [line.rstrip() for line in printed.replace(str(run), run.name).splitlines() if line.strip()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="run files of examples/papers by name; all of them otherwise")
    parser.add_argument("--games", type=Path, default=GAMES, help="ALFWorld's games: a folder, or a .tar.xz")
    parser.add_argument("--webshop", type=Path, help="folder of WebShop's files")
    parser.add_argument("--math", type=Path, help="folder of math_train.json and the benchmarks")
    parser.add_argument("--vllm", type=Path, help="Python of an environment with vLLM; else the local engine samples")
    parser.add_argument("--write", type=Path, help="write the result as JSON")
    options = parser.parse_args()
    command = describe_command("benchmarks.papers", sys.argv[1:])
    result: dict[str, Any] = {"command": command, "small": [*SMALL], "small by environment": SMALL_BY_ENV, "runs": []}
    for name in options.names or FILES:
        if name.startswith("r3") and not options.math:
            print(f"{name}: left out, it needs --math")
            continue
        with tempfile.TemporaryDirectory() as folder:
            record = run_file(name, Path(folder), options)
        result["runs"].append(record)
        write_result(result, options.write)  # after each file: all of them take long
        print(json.dumps(record | {"evaluation": ""}), *record["evaluation"], sep="\n", flush=True)


if __name__ == "__main__":
    main()
