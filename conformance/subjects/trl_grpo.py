"""TRL's GRPOTrainer and RLOOTrainer, run for one step on a CPU with a tiny random model.

Nothing is downloaded: the model and the tokenizer are built in memory. The dataset has one prompt per task, the
reward function returns the case's rewards, and the advantages are those that `_generate_and_score_completions`
hands to the loss in `trainer.train()`. The trainer forms its groups from its own sampler, which repeats each prompt
`num_generations` times, so one row per rollout and one group size for all tasks is all that can be put to it.
"""

from __future__ import annotations

import os
import tempfile
import warnings
from importlib import metadata
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

from datasets import Dataset, disable_progress_bars
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, PrinterCallback
from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer

from conformance.case import Columns, Options
from conformance.subjects.rollouts import episode_returns, rollouts_by_task, rows_by_rollout

disable_progress_bars()

TRAINERS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "grpo": (GRPOTrainer, GRPOConfig, {"scale_rewards": "group"}),
    "dr_grpo": (GRPOTrainer, GRPOConfig, {"scale_rewards": "none"}),
    "rloo": (RLOOTrainer, RLOOConfig, {}),
}
ONE_QUIET_STEP: dict[str, Any] = {
    "max_steps": 1,
    "max_completion_length": 2,
    # RLOO would subtract the divergence from the reward.
    "beta": 0.0,
    "shuffle_dataset": False,
    "use_cpu": True,
    "bf16": False,
    "gradient_checkpointing": False,
    "report_to": "none",
    "save_strategy": "no",
    "logging_strategy": "no",
    "disable_tqdm": True,
}
WORDS = ["<pad>", "<eos>", "<unk>", "task", *(str(i) for i in range(100))]


class TrlGrpo:
    """TRL, asked by training for one step."""

    def __init__(self) -> None:
        packages = ("trl", "torch", "transformers", "numpy")
        self.versions = {name: metadata.version(name) for name in packages}
        self.title = f"TRL {self.versions['trl']}"
        self._model = tiny_model()
        self._tokenizer = word_tokenizer()

    def supports(self, method: str, options: Options, columns: Columns) -> str | None:
        if method not in TRAINERS:
            return "TRL has no such estimator"
        if options.get("eps", 1e-4) != 1e-4:
            return "eps is fixed at 1e-4"
        if options.get("ddof", 1) != 1:
            return "the deviation is always that of a sample"
        if any(len(members) > 1 for members in rows_by_rollout(columns).values()):
            return "a rollout is one row"
        sizes = {len(rollouts) for rollouts in rollouts_by_task(columns).values()}
        if min(sizes) < 2:
            return "the configuration refuses groups of one"
        if len(sizes) > 1:
            return "all groups have one size"
        return None

    def advantage(self, method: str, options: Options, columns: Columns) -> list[float]:
        tasks, returns, members = rollouts_by_task(columns), episode_returns(columns), rows_by_rollout(columns)
        groups = [[returns[rollout] for rollout in rollouts] for rollouts in tasks.values()]
        answer = self._train_once(method, groups)
        credit = [0.0] * len(members)
        for number, rollouts in enumerate(tasks.values()):
            for place, rollout in enumerate(rollouts):
                credit[members[rollout][0]] = answer[number, place]
        return credit

    def _train_once(self, method: str, groups: list[list[float]]) -> dict[tuple[int, int], float]:
        """Advantages by (number of the task, place in its group)."""
        trainer_class, config_class, choice = TRAINERS[method]
        seen: dict[str, Any] = {}

        class Listening(trainer_class):  # type: ignore[misc, valid-type]
            """The trainer, with an ear on what it hands to the loss."""

            def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
                output: dict[str, Any] = super()._generate_and_score_completions(inputs)
                seen["numbers"] = [row["number"] for row in inputs]
                seen["advantages"] = output["advantages"].tolist()
                return output

        def reward(prompts: list[str], number: list[int], **_: Any) -> list[float]:
            return [groups[task][place] for task, place in places(number)]

        prompts = {"prompt": [f"task {i}" for i in range(len(groups))], "number": list(range(len(groups)))}
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trainer = Listening(
                model=self._model,
                reward_funcs=reward,
                args=config_class(
                    output_dir=folder,
                    per_device_train_batch_size=len(groups) * len(groups[0]),
                    num_generations=len(groups[0]),
                    **ONE_QUIET_STEP,
                    **choice,
                ),
                train_dataset=Dataset.from_dict(prompts),
                processing_class=self._tokenizer,
            )
            trainer.remove_callback(PrinterCallback)
            trainer.train()
        return dict(zip(places(seen["numbers"]), seen["advantages"], strict=True))


def places(numbers: list[int]) -> list[tuple[int, int]]:
    """Each row's task and its place among the rows of that task."""
    counts: dict[int, int] = {}
    pairs = []
    for number in numbers:
        counts[number] = counts.get(number, -1) + 1
        pairs.append((number, counts[number]))
    return pairs


def tiny_model() -> Any:
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(WORDS),
            hidden_size=16,
            intermediate_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=2,
            max_position_embeddings=64,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=1,
        )
    )


def word_tokenizer() -> Any:
    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", padding_side="left"
    )
