"""All errors that users see, as one tree.

    GroupwiseError
    ├── ConfigError        a part, a method or a run file has an invalid setting
    ├── RecordError        recorded data is invalid: a missing column, a NaN, two rows with one identity
    │   └── FileError      a file cannot be read or written: truncated, corrupt, another format or version
    ├── EnvironmentFault   an environment raised, hung or died
    ├── EngineFault        an engine failed, or cannot do what was asked
    └── TrainingError      a run cannot continue: a NaN, a failed weight sync, too few rollouts left

A message says *where* (path, row or key), *what was found*, and *what to do next*.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

MAX_NAMES = 5
"""How many valid names an error message lists."""
MAX_NAME = 200
"""Characters of a name that is compared with others: the time grows with the square."""


class GroupwiseError(ValueError):
    """Root of the tree; the command line prints it as one line and exits with status 2."""


class Problem(NamedTuple):
    """One wrong setting."""

    path: tuple[str, ...]
    """The path of the setting; empty = not known."""
    text: str
    """What is wrong, and how to fix it."""
    is_unknown: bool = False
    """Whether no setting has this name or one like it."""

    @classmethod
    def of_unknown(cls, path: Sequence[str], valid: Iterable[str], *, listed_by: str) -> Problem:
        names = [*valid]
        text = f"unknown setting; {nearest(path[-1], names, listed_by=listed_by)}"
        return cls(tuple(path), text, not find_near(path[-1], names))

    def below(self, *path: str) -> Problem:
        """The same problem of a setting that is inside another one."""
        return self._replace(path=(*path, *self.path))

    def __str__(self) -> str:
        path, text = ".".join(self.path), self.text
        by_path = OTHER_NAMES.get(path) if text.startswith("unknown setting") else None
        ours = by_path or (OTHER_NAMES.get(self.path[-1]) if self.is_unknown else None)
        if ours and ours != path:
            text = f"unknown setting; here: {ours}"
        return f"{path}: {text}" if path else text


class ConfigError(GroupwiseError):
    """A part, a method or a run file has an invalid setting.

    >>> ConfigError(problems=[Problem(("training", "updates"), "expected an integer, found 'many'")])
    ConfigError("training.updates: expected an integer, found 'many'")
    """

    def __init__(self, message: str = "", *, key: Sequence[str] = (), problems: Sequence[Problem] = ()) -> None:
        self.problems = [*problems] or [Problem(tuple(key), message)]
        """Each wrong setting."""
        super().__init__(message or self.describe())

    @property
    def key(self) -> tuple[str, ...]:
        """The path of the first wrong setting; empty = not known."""
        return self.problems[0].path

    def below(self, *path: str) -> ConfigError:
        """The same error of settings that are inside another one."""
        return ConfigError(problems=[problem.below(*path) for problem in self.problems])

    def describe(self) -> str:
        """The problems as a run file's user reads them, each after the path of its setting."""
        return ". Also ".join(map(str, self.problems))


class RecordError(GroupwiseError):
    """Recorded data is invalid."""

    def __init__(self, message: str, *, row: int | None = None) -> None:
        super().__init__(message)
        self.row = row
        """The wrong row, if there is one, for a message that names its line."""


class FileError(RecordError):
    """A file cannot be read or written."""


class EnvironmentFault(GroupwiseError):
    """An environment raised, hung or died; stored on its trajectory."""


class EngineFault(GroupwiseError):
    """An engine failed, or cannot do what was asked."""


class TrainingError(GroupwiseError):
    """A run cannot continue."""


def nearest(name: str, valid: Iterable[str], *, listed_by: str = "") -> str:
    """The end of an error message about an unknown name: the nearest valid names, or at most five valid ones.

    `listed_by` is the command or page that lists all of them, if there is one.

    >>> nearest("dpth", ["depth", "alpha"])
    "did you mean 'depth'? Valid: alpha, depth"
    >>> nearest("gpro", ["hgpo", "grpo", "gpr", "rloo", "gspo", "disco"], listed_by="`groupwise methods`")
    "did you mean 'gpr' or 'grpo'? `groupwise methods` lists them all"
    """
    names = sorted(valid)
    near = find_near(name, names)
    if not near or len(names) <= MAX_NAMES:
        hint = f"did you mean {near[0]!r}? " if near else ""
        return f"{hint}Valid: {list_names(names, listed_by=listed_by)}"
    edits = count_edits(name, near[0])
    first, *others = [repr(other) for other in near if count_edits(name, other) <= edits]
    hint = f"did you mean {' or '.join([', '.join([first, *others[:-1]]), *others[-1:]])}?"
    return f"{hint} {listed_by} lists them all" if listed_by else f"{hint} ({len(names)} are valid)"


def find_near(name: str, valid: Iterable[str]) -> list[str]:
    """The valid names most like an unknown one, nearest first, at most five.

    A name is near if at most half of its characters have to change.

    >>> find_near("gpro", ["hgpo", "grpo", "dpo", "reinforce"])
    ['grpo', 'dpo', 'hgpo']
    """
    if len(name) > MAX_NAME:
        return []
    alike = [other for other in valid if 2 * abs(len(name) - len(other)) <= max(len(name), len(other))]
    distances = {other: count_edits(name, other) for other in alike}
    near = [other for other, edits in distances.items() if 2 * edits <= max(len(name), len(other))]
    return sorted(near, key=lambda other: (distances[other] / max(len(name), len(other), 1), other))[:MAX_NAMES]


def count_edits(first: str, second: str) -> int:
    """The edit distance of two texts: insert, delete, replace, or swap two neighbours.

    This is the Damerau-Levenshtein distance in which no part is edited twice ("optimal string alignment").

    >>> count_edits("gpro", "grpo"), count_edits("gpro", "hgpo"), count_edits("", "ab")
    (1, 2, 2)
    """
    while first and second and first[0] == second[0]:  # a common beginning costs nothing
        first, second = first[1:], second[1:]
    before: list[int] = []
    above: list[int] = [*range(len(second) + 1)]
    for row, letter in enumerate(first, start=1):
        line: list[int] = [row]
        for column, other in enumerate(second, start=1):
            edits = min(above[column] + 1, line[-1] + 1, above[column - 1] + (letter != other))
            if row > 1 and column > 1 and first[row - 2 : row] == second[column - 2 : column][::-1]:
                edits = min(edits, before[column - 2] + 1)
            line.append(edits)
        before, above = above, line
    return above[-1]


def list_names(names: Iterable[str], *, listed_by: str = "") -> str:
    """Names for an error message: at most five, the number of all, and the command or page that lists them."""
    listed = list(names)
    command = f"; {listed_by} lists them" if listed_by else ""
    rest = f", ... ({len(listed)} in all{command})" if len(listed) > MAX_NAMES else ""
    return f"{', '.join(listed[:MAX_NAMES]) or '(none)'}{rest}"


OTHER_NAMES = {
    name: setting
    for setting, names in {
        "rollout.group_size": (
            "attempts group_size n n_samples_per_prompt "
            "num_generations num_return_sequences num_rollouts rollouts_per_example"
        ),
        "evaluation.rollouts": "evaluation.attempts evaluation.group_size evaluation.n",
        "engine.context": "context_length",
        "rollout.lag": "lag",
        "engine": "rollout.engine training.engine",
        "rollout.action_parser": "action_rule",
        "rollout.history.steps": "history_length",
        "rollout.max_staleness": "max_age",
        "rollout.max_prompt_tokens": "max_prompt_length",
        "rollout.max_tokens": "max_completion_length max_new_tokens max_response_length max_tokens",
        "rollout.history": "memory",
        "rollout.plan": "plan",
        "rollout.system": "system_prompt",
        "rollout.temperature": "temperature",
        "training.tasks": "batch_size train_batch_size",
        "evaluation.every": "eval_steps test_freq",
        "training.updates": "num_train_epochs total_epochs total_training_steps training.max_steps updates",
        "training.checkpoint_every": "save_freq save_steps",
        "checkpoints.keep": "save_total_limit",
        "training.weight_sync": "weight_transfer",
        "training.learner.token_budget": (
            "gradient_accumulation_steps per_device_train_batch_size ppo_max_token_len_per_gpu"
        ),
        "training.learner": "learner",
        "training.learner.learning_rate": "learning_rate lr",
        "training.learner.schedule": "lr_scheduler_type",
        "training.learner.max_grad_norm": "max_grad_norm",
        "training.learner.passes": "num_iterations ppo_epochs",
        "training.learner.optimizer": "optim",
        "training.learner.minibatch_samples": "ppo_mini_batch_size",
        "training.learner.minibatches": "steps_per_generation",
        "warm_start.learning_rate": "warm_start.lr",
        "training.learner.schedule.warmup_steps": "warmup_ratio warmup_steps",
        "training.learner.weight_decay": "weight_decay",
        "algorithm.rollout_filters": "admissions",
        "algorithm.method": "adv_estimator advantage_estimator method recipe",
        "algorithm.loss.penalties": "beta entropy_coeff kl_coef kl_loss_coef",
        "algorithm.loss.surrogate": "clip_ratio cliprange epsilon epsilon_high",
        "algorithm.hint": "guidance",
        "algorithm.loss.aggregate": "loss_agg_mode loss_type",
        "algorithm.scorers": "measures",
        "algorithm.advantage.scale": "norm_adv_by_std_in_grpo scale_rewards",
        "env": "environment",
        "model.lora_rank": "lora_r lora_rank peft_config",
        "model.lora_targets": "lora_target_modules",
        "model.path": "model_name_or_path model_path",
        "task_set": "panel",
        "trackers": "report_to",
        "rewards": "reward_funcs",
        "warm_start.expert_noise": "sloppiness",
        "engine.kind": "use_vllm",
    }.items()
    for name in names.split()
}
"""Settings by the names that other trainers and earlier versions give them: a name alone, or a path."""
