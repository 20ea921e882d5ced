"""The sections of a run file as one model."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import product
from typing import Annotated, Any, ClassVar, Literal, Protocol

from pydantic import Field, field_validator, model_validator

from groupwise.agents.function_agent import AgentSlot
from groupwise.credit import EnvironmentReward, RewardSlot
from groupwise.credit.filters import Staleness
from groupwise.envs.environment import EnvironmentSlot
from groupwise.envs.kit.words import split_words
from groupwise.envs.part_queries import ask_vocabulary
from groupwise.learner.config import LearnerConfig
from groupwise.learner.protocol import LearnerSlot
from groupwise.learner.weight_sync import InMemory, WeightSyncSlot
from groupwise.losses.corrections import Truncate
from groupwise.losses.policy_loss import PolicyLoss
from groupwise.losses.token_columns import OLD_LOGP, REFERENCE_LOGP
from groupwise.parts.algorithm import Algorithm
from groupwise.parts.part import Count, Part, Slot, load_catalogue
from groupwise.parts.path_settings import PathText
from groupwise.parts.slots import REFUSED_IN_EVALUATION, REFUSED_SAMPLING, VERSIONS, EngineSlot
from groupwise.rollout.actions import TAGS, ActionParserSlot, Choice, Tagged, WholeResponse
from groupwise.rollout.plans import Flat, Hinted, PlanSlot, RolloutPlan, plan_words
from groupwise.rollout.prompts import HistorySlot, OverLimit, PromptTemplate, TemplateFile, TemplateSlot, Window
from groupwise.rollout.tasks import CurriculumSlot, Shuffled
from groupwise.training.alarms import AlarmsConfig
from groupwise.training.config.engine_config import LocalEngine
from groupwise.training.trackers import TrackerSlot


class ModelPart(Protocol):
    """Fills the slot `model`: opens the weights and the tokenizer.

    A model with `open_tokenizer(*, words)` can be previewed without its weights. It returns the tokenizer and the
    model's number of positions (None = no limit). A model with `needs_words = False` has its own tokenizer: it gets no
    words, and its environments need no `vocabulary`.
    """

    def open(self, *, words: tuple[str, ...], seed: int) -> tuple[Any, Any]:
        """Return the model and its tokenizer; `words` are for a tokenizer that is made from scratch."""


OF_ENVIRONMENTS = ("history", "template", "system", "action_parser")
"""Settings of rollouts that an agent does not have."""


class RolloutConfig(Part):
    """How rollouts are sampled."""

    refused_fields: ClassVar[Mapping[str, str]] = REFUSED_SAMPLING

    history: HistorySlot = Window()
    """The history in the prompt."""
    template: TemplateSlot = PromptTemplate()
    """How observations become a prompt."""
    system: str = ""
    """A system prompt: a system message if the model's chat template supports it, else a line before everything. Empty
    = the chat template's own system message, if any."""
    action_parser: ActionParserSlot = WholeResponse()
    """The action parser: how actions are read from responses."""
    group_size: Annotated[int, Field(ge=2)] = 8
    """Rollouts per task."""
    plan: PlanSlot = Flat()
    """Which tasks get rollouts, with which hints, and which groups are compared."""
    max_tokens: Count = 16
    """Largest number of tokens per response."""
    max_prompt_tokens: Annotated[int, Field(ge=1)] | None = None
    """Largest number of tokens per prompt; None = no limit but the model's context."""
    over_limit: OverLimit = "refuse"
    """What happens to a longer prompt. With `refuse` the rollout ends there, as truncated. With `cut_left` only the
    last tokens stay, so the task at the beginning goes first. With `drop_oldest` the oldest past steps are left out
    until the prompt fits. If none is left, it is cut on the left."""
    temperature: Annotated[float, Field(gt=0)] = 1.0
    """Divides the logits, in the engine and in the learner."""
    workers: Annotated[int, Field(ge=0)] | Literal["auto"] = "auto"
    """Processes that environments run in; 0 = this process, without time limit or isolation. auto = 0 for the
    environments that come with groupwise, 1 for others."""
    env_timeout: Annotated[float, Field(gt=0)] = 30.0
    """Seconds an environment in a worker process may take for one action."""
    lag: Literal[0, 1, "free"] = 0
    """Whether rollouts are sampled while the learner learns. 0 = synchronous. 1 = one-step off-policy: rollouts
    are sampled with weights that are one update older; the run is bit-exact reproducible. free = fully asynchronous:
    rollouts also continue during weight syncs; the run is not reproducible."""
    max_staleness: Count = 1
    """At a lag above 0: the highest staleness of a rollout, in policy versions, when it is trained. With `free`,
    rollouts are requested that many updates ahead; none is discarded."""
    corrects_lag: bool = True
    """Whether two corrections are added at a lag above 0: truncated importance weights, and the filter `staleness` with
    `max_staleness`. The weights (`truncate`) are added if the loss has `old = "learner"` and no correction yet."""

    @field_validator("lag", mode="before")
    @classmethod
    def _is_known_lag(cls, value: object) -> object:
        if isinstance(value, bool) or value not in (0, 1, "free"):
            raise ValueError(f'found {value!r}; give 0 (synchronous), 1 (one-step off-policy) or "free" (asynchronous)')
        return value

    @field_validator("workers", mode="before")
    @classmethod
    def _is_number_or_auto(cls, value: object) -> object:
        if value != "auto" and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
            raise ValueError(f'found {value!r}; give a number of processes, 0 or more, or "auto"')
        return value

    @model_validator(mode="after")
    def _parser_fits_template(self) -> RolloutConfig:
        if isinstance(self.action_parser, Tagged) != self.template.asks_for_tags:
            raise ValueError(
                "action_parser 'tagged' and a template that asks for tags (template.thoughts, the published_template, "
                "or template.asks_for_tags of a template_file) need each other; set both or neither"
            )
        return self

    @model_validator(mode="after")
    def _history_is_shown(self) -> RolloutConfig:
        uses_history = isinstance(self.template, TemplateFile) and self.template.uses("history")
        if uses_history and self.history.first_shown(1) == 1:
            raise ValueError(
                "template: the text has the placeholder $history, but rollout.history shows no past step; set "
                'rollout.history = { kind = "window", steps = 2 }, or leave out $history'
            )
        return self

    @model_validator(mode="after")
    def _limits_prompts(self) -> RolloutConfig:
        if self.over_limit != "refuse" and self.max_prompt_tokens is None:
            raise ValueError(
                f"over_limit: {self.over_limit!r} needs a limit; set rollout.max_prompt_tokens, or leave out over_limit"
            )
        if isinstance(self.action_parser, Choice) and getattr(self.template, "show_admissible", "") != "numbered":
            raise ValueError(
                "action_parser 'choice' needs the numbers of the actions in the prompt; set template.show_admissible = "
                '"numbered"'
            )
        return self


class TrainingConfig(Part):
    """The length of a run and the content of an update."""

    updates: Annotated[int, Field(ge=0)] = 20
    """Updates to make."""
    tasks: Count = 16
    """Tasks per update."""
    curriculum: CurriculumSlot = Shuffled()
    """The order of the tasks."""
    learner: LearnerSlot = LearnerConfig()
    """How the weights are updated."""
    weight_sync: WeightSyncSlot = InMemory()
    """How the learner's weights get to the engine."""
    checkpoint_every: Count = 5
    """Updates between checkpoints; the last update always gets one."""
    min_survivors: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Fraction of an update's rollouts that must end without an error; below it the run stops."""


class EvaluatedTaskSet(Part):
    """A task set of an evaluation. Settings that are left out are those of [evaluation]."""

    refused_fields: ClassVar[Mapping[str, str]] = REFUSED_IN_EVALUATION

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.@-]+$")]
    """Its name in tables, metrics and the journal."""
    split: str | None = None
    """Split of the environment."""
    tasks: Annotated[int, Field(ge=1)] | None = None
    """Number of its tasks, from the first."""
    rollouts: Annotated[int, Field(ge=1)] | None = None
    """Rollouts per task."""
    temperature: Annotated[float, Field(ge=0)] | None = None
    """Divides the logits; 0 = always the most likely token."""
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    """Largest number of tokens per response."""
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    """Sample from the fewest most likely tokens whose probabilities reach this sum."""
    top_k: Annotated[int, Field(ge=0)] | None = None
    """Sample from this many most likely tokens; 0 = all."""
    steps: Annotated[int, Field(ge=1)] | None = None
    """Step limit of the environment."""
    score: str | None = None
    """Step info that is reported as the score."""


class EvaluationConfig(Part):
    """How the policy is evaluated."""

    refused_fields: ClassVar[Mapping[str, str]] = REFUSED_IN_EVALUATION

    split: str = "test"
    """Task set, disjoint from the train set."""
    tasks: Annotated[int, Field(ge=0)] = 200
    """Number of its tasks, from the first; 0 = no evaluation."""
    every: Annotated[int, Field(ge=0)] = 0
    """Updates between evaluations; 0 = only before the first update and after the last."""
    patience: Annotated[int, Field(ge=0)] = 0
    """Number of consecutive evaluations without a higher success that ends the run early; 0 = never."""
    rollouts: Count = 1
    """Rollouts per task."""
    temperature: Annotated[float, Field(ge=0)] = 0.4
    """Divides the logits; 0 = always the most likely token."""
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    """Largest number of tokens per response; none = `rollout.max_tokens`."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Sample from the fewest most likely tokens whose probabilities reach this sum; 1 = from all."""
    top_k: Annotated[int, Field(ge=0)] = 0
    """Sample from this many most likely tokens; 0 = from all. It comes before `top_p`."""
    steps: Annotated[int, Field(ge=1)] | None = None
    """Step limit of the environment; none = its own."""
    score: str = ""
    """Step info that is reported as the score: the mean over rollouts of its value in the last step, 0 if a rollout
    ended without it. Empty = none."""
    task_sets: tuple[EvaluatedTaskSet, ...] = ()
    """Several task sets, each with settings of its own. The best checkpoint and `patience` read the first. Empty = one,
    with the settings above."""

    @field_validator("task_sets")
    @classmethod
    def _have_names_of_their_own(cls, task_sets: tuple[EvaluatedTaskSet, ...]) -> tuple[EvaluatedTaskSet, ...]:
        names = [task_set.name for task_set in task_sets]
        if len(set(names)) < len(names):
            raise ValueError(f"two task sets share a name ({', '.join(names)}); give each its own name")
        return task_sets

    def by_name(self) -> dict[str, EvaluationConfig]:
        """The settings of each task set by its name, the main one first; empty if nothing is evaluated."""
        if not self.tasks:
            return {}
        if not self.task_sets:
            return {self.split: self}
        return {
            task_set.name: self.model_copy(
                update={
                    **{name: value for name, value in task_set if name != "name" and value is not None},
                    "task_sets": (),
                }
            )
            for task_set in self.task_sets
        }

    def place_of(self, name: str) -> str:
        """Where a task set stands in the run file."""
        return f"evaluation.task_sets ({name})" if self.task_sets else "evaluation"

    @property
    def main(self) -> str:
        """Name of the task set that says which checkpoint is the best."""
        return self.task_sets[0].name if self.task_sets else self.split


class CheckpointsConfig(Part):
    """Which checkpoints are kept in the run folder."""

    keep: Literal["all", "best"] | Count = "all"
    """all = every checkpoint of `training.checkpoint_every`. A number = that many of the newest, and the best. best =
    the latest and the best only. The best has the highest success in evaluations; unless all are kept, it is also saved
    if no checkpoint was due. The reference policy of a loss is always kept."""

    @field_validator("keep", mode="before")
    @classmethod
    def _is_known(cls, value: object) -> object:
        if value not in ("all", "best") and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise ValueError(
                f'found {value!r}; give "all", "best" or the number of newest checkpoints to keep, 1 or more'
            )
        return value


class WarmStartConfig(Part):
    """Supervised fine-tuning on an expert's actions before the first update."""

    tasks: Count = 200
    """Training tasks that the expert solves."""
    epochs: Count = 2
    """Passes over the expert's steps."""
    noise: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Fraction of steps with a random action instead of the expert's, after which the expert shows how to recover. The
    random action is one that was offered so far, possible now or not. These steps are not trained."""
    expert_noise: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Fraction of steps with a random possible action that is trained: a noisy expert, which leaves something to
    learn."""
    observation_weight: Annotated[float, Field(ge=0)] = 0.0
    """Weight of observation tokens; above 0, a new model learns sooner to copy what it reads."""
    learning_rate: Annotated[float, Field(gt=0)] = 3e-3
    """Step size of AdamW after a short warm-up; it falls to a twentieth along a cosine."""
    batch_tokens: Count = 512
    """Distinct tokens per optimizer step."""


class RunConfig(Part):
    """All settings of a run."""

    seed: int = 0
    """Root of the tree of seeds."""
    algorithm: Algorithm
    """The method's parts."""
    made_by: Mapping[str, Any] | None = None
    """The section [algorithm] as it was written, with the method's name and options, for reports. Only a run's own
    config.toml has it; the run uses [algorithm] alone."""
    device: str = "auto"
    """The model's device: cpu, cuda, cuda:1; auto = a GPU if there is one."""
    threads: Annotated[int, Field(ge=0, le=65536)] = 0
    """Threads of torch; 0 = torch's choice. More threads than free cores are many times slower."""
    shares_cores: bool = False
    """Whether `threads` is an upper limit (0 = none): the run uses fewer if fewer cores are free when it begins, or if
    OMP_NUM_THREADS is smaller. The number is stored with the run, because it changes the last digits of results."""
    env: EnvironmentSlot = Field(default=None, validate_default=False)  # type: ignore[assignment]  # set below
    """The environment and its tasks."""
    agent: AgentSlot | None = None
    """The agent and its tasks, in place of an environment."""
    task_set: PathText = ""
    """A task set file of `groupwise tasks ENV --out FILE`; the run fails if its tasks differ from the file's. Empty =
    none."""
    rewards: Annotated[tuple[RewardSlot, ...], Field(min_length=1)] = (EnvironmentReward(),)
    """The reward of a step is the sum of these."""
    model: Annotated[ModelPart, Slot("model")]
    """The model and its weights."""
    engine: EngineSlot = LocalEngine()
    """The engine that samples responses."""
    rollout: RolloutConfig = RolloutConfig()
    """How rollouts are sampled."""
    training: TrainingConfig = TrainingConfig()
    """The length of the run and the content of an update."""
    checkpoints: CheckpointsConfig = CheckpointsConfig()
    """Which checkpoints are kept."""
    evaluation: EvaluationConfig = EvaluationConfig()
    """How the policy is evaluated."""
    alarms: AlarmsConfig = AlarmsConfig()
    """Warnings about metrics of the run, which can stop it."""
    warm_start: WarmStartConfig | None = None
    """Supervised fine-tuning before the first update, if any."""
    trackers: tuple[TrackerSlot, ...] = ()
    """Dashboards and files that get a copy of the metrics."""

    @model_validator(mode="after")
    def _corrects_lag(self) -> RunConfig:
        if self.rollout.lag and self.rollout.corrects_lag:
            algorithm = correct_lag(
                self.algorithm,
                max_staleness=self.rollout.max_staleness,
                knows_versions=VERSIONS in getattr(self.engine, "gives", frozenset()),
            )
            object.__setattr__(self, "algorithm", algorithm)  # frozen from here on
        return self

    @model_validator(mode="after")
    def _has_environment_or_agent(self) -> RunConfig:
        if self.agent is None:
            if self.env is None:
                raise ValueError("it has neither an environment nor an agent; write a section [env] or [agent]")
            return self
        if self.env not in (None, self.agent):
            raise ValueError("a run has an environment or an agent; leave out [env] or [agent]")
        written = self.rollout.model_fields_set
        refused = {
            f"rollout.{name}": "an agent writes its own prompts, and its replies are read as messages"
            for name in OF_ENVIRONMENTS
            if name in written
        }
        if self.rollout.over_limit != "refuse":
            refused["rollout.over_limit"] = "an agent is told that its prompt is too long"
        if self.warm_start is not None:
            refused["warm_start"] = "an agent has no expert"
        if self.algorithm.hint is not None:
            refused["algorithm.hint"] = "an agent writes its own prompts"
        for part in self.algorithm.scorers or ():
            if {"fork", "expert"} & {*getattr(part, "needs", ())}:
                refused["algorithm.scorers"] = "an agent cannot be copied, and has no expert"
        if not isinstance(self.rollout.plan, Flat):
            refused["rollout.plan"] = "other plans than flat were not tried with agents"
        if refused:
            listed = "; ".join(f"{place}: {reason}" for place, reason in refused.items())
            raise ValueError(f"settings that do not fit [agent]: {listed}. Leave them out")
        object.__setattr__(self, "env", self.agent)  # its tasks are read like those of an environment
        return self

    @model_validator(mode="after")
    def _takes_small_steps(self) -> RunConfig:
        is_refused = getattr(self.training.learner, "bfloat16_weights", "refused") == "refused"
        if is_refused and getattr(self.model, "trains_in_bfloat16", False):
            raise ValueError(
                "model: all weights would train in bfloat16, which rounds small steps to 0; set model.dtype = "
                "'float32', a model.lora_rank, or training.learner.bfloat16_weights"
            )
        return self

    @model_validator(mode="after")
    def _evaluates_what_it_waits_for(self) -> RunConfig:
        evaluation = self.evaluation
        if evaluation.patience and not (evaluation.tasks and evaluation.every):
            name = "every" if evaluation.tasks else "tasks"
            raise ValueError(
                f"evaluation: patience = {evaluation.patience} needs evaluations between updates, but {name} = 0; "
                f"raise evaluation.{name}, or leave out evaluation.patience"
            )
        if self.checkpoints.keep == "best" and not evaluation.tasks:
            raise ValueError(
                'checkpoints: keep = "best" needs evaluations, but evaluation.tasks = 0; raise evaluation.tasks, or '
                "set checkpoints.keep = 1 for the latest only"
            )
        return self

    def config(self) -> dict[str, Any]:
        """All settings as plain data; those of environments are left out if there is an agent."""
        config = super().config()
        if self.agent is not None:
            del config["env"]
            for name in OF_ENVIRONMENTS:
                del config["rollout"][name]
        return config

    @property
    def num_workers(self) -> int:
        """Number of environment processes, with `auto` resolved."""
        asked = self.rollout.workers
        return asked if asked != "auto" else 0 if is_ours(self.env) else 1

    @property
    def plan(self) -> RolloutPlan:
        """The plan, with the algorithm's hints in it."""
        plan, hint = self.rollout.plan, self.algorithm.hint
        return plan if hint is None else Hinted(plan=plan, hint=hint)

    @property
    def reads_past_rollouts(self) -> bool:
        """Whether the run needs rollouts of earlier updates; an outside plan may ask for them."""
        return self.algorithm.reads_past_rollouts or getattr(self.rollout.plan, "reads_past_rollouts", True)

    @property
    def needs_reference(self) -> bool:
        """Whether the loss or a scorer compares with a reference policy."""
        loss = self.algorithm.loss
        return self.algorithm.scorers_need_reference or (loss is not None and REFERENCE_LOGP in loss.needs)

    @property
    def needs_words(self) -> bool:
        """Whether the model makes its tokenizer from words; an outside model may."""
        return getattr(self.model, "needs_words", True)

    def words(self) -> tuple[str, ...]:
        """Every word of the run's prompts and answers, for a tokenizer that is made from scratch."""
        if not self.needs_words:
            return ()
        tags = TAGS if self.rollout.template.asks_for_tags else ()
        of_rollout = (*self.rollout.template.words(), *tags, *split_words(self.rollout.system))
        return (*ask_vocabulary(self.env), *of_rollout, *plan_words(self.plan))


def is_ours(env: object) -> bool:
    """Whether an environment comes with groupwise and names no module of the user."""
    is_known = isinstance(env, Part) and type(env) in load_catalogue("env").values()
    return is_known and not getattr(env, "names_module", False)


def correct_lag(algorithm: Algorithm, *, max_staleness: int, knows_versions: bool) -> Algorithm:
    """Add truncated importance weights and a filter on staleness to an algorithm without them.

    The weights are added if the loss takes its ratio against the learner; a ratio against the engine needs none. The
    filter is added if the engine reports versions and nothing is replayed: it would drop every replayed rollout.
    """
    changes: dict[str, object] = {}
    loss = algorithm.loss
    if isinstance(loss, PolicyLoss) and lacks_correction(algorithm):
        changes["loss"] = loss.model_copy(update={"corrections": (*loss.corrections, Truncate())})
    has_filter = any(isinstance(part, Staleness) for part in algorithm.filters)
    if knows_versions and not has_filter and algorithm.replay is None:
        changes["filters"] = (*algorithm.filters, Staleness(max_staleness=max_staleness))
    return algorithm.model_copy(update=changes) if changes else algorithm


def undo_correction(algorithm: Algorithm, *, max_ages: Collection[int]) -> Algorithm:
    """Undo `correct_lag`, if it was applied with one of these ages."""
    loss, filters = algorithm.loss, algorithm.filters
    losses = [loss]
    if isinstance(loss, PolicyLoss):
        losses.insert(0, loss.model_copy(update={"corrections": loss.corrections[:-1]}))
    for lesser, fewer in product(losses, (filters[:-1], filters)):
        before = algorithm.model_copy(update={"loss": lesser, "filters": fewer})
        for max_staleness, knows_versions in product(max_ages, (True, False)):
            if correct_lag(before, max_staleness=max_staleness, knows_versions=knows_versions) == algorithm:
                return before
    return algorithm


def lacks_correction(algorithm: Algorithm) -> bool:
    """Whether the loss takes its ratio against the learner and does not correct the gap to the engine."""
    loss = algorithm.loss
    if not isinstance(loss, PolicyLoss) or loss.old != "learner":
        return False
    return not any(OLD_LOGP in getattr(correction, "needs", frozenset()) for correction in loss.corrections)
