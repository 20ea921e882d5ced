"""The run file's sections as one model: everything a run is, complete and loadable."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import product
from typing import Annotated, Any, ClassVar, Literal, Protocol

from pydantic import Field, field_validator, model_validator

from groupwise.credit import EnvironmentReward, RewardSlot
from groupwise.credit.filters import Staleness
from groupwise.envs.environment import EnvironmentSlot
from groupwise.envs.kit.words import split_words
from groupwise.envs.part_queries import ask_vocabulary
from groupwise.learner.config import LearnerConfig
from groupwise.learner.protocol import LearnerSlot
from groupwise.learner.weight_sync import InMemory, WeightTransferSlot
from groupwise.losses.corrections import Truncate
from groupwise.losses.policy_loss import PolicyLoss
from groupwise.losses.token_columns import OLD_LOGP
from groupwise.parts.algorithm import Algorithm
from groupwise.parts.part import Part, Slot, load_catalogue
from groupwise.parts.path_settings import PathText
from groupwise.parts.slots import REFUSED_SAMPLING, VERSIONS, EngineSlot
from groupwise.rollout.actions import TAGS, ActionRuleSlot, Choice, Tagged, WholeResponse
from groupwise.rollout.plans import AttemptPlan, Flat, Guided, PlanSlot, plan_words
from groupwise.rollout.prompts import MemorySlot, PromptTemplate, TemplateSlot, Window
from groupwise.rollout.tasks import CurriculumSlot, Shuffled
from groupwise.training.alarms import AlarmsConfig
from groupwise.training.config.engine_config import LocalEngine
from groupwise.training.trackers import TrackerSlot


class ModelPart(Protocol):
    """Fills the slot `model`: where the weights and the tokenizer come from.

    One that also has `open_tokenizer(*, words)`, which gives the tokenizer alone and the model's number of positions
    (None = no limit), can be previewed without its weights. One whose `needs_words` is False brings its own tokenizer:
    it gets no words, and its environments need no `vocabulary`.
    """

    def open(self, *, words: tuple[str, ...], seed: int) -> tuple[Any, Any]:
        """The model and its tokenizer; `words` are those of the environment, for a tokenizer made from scratch."""


class RolloutConfig(Part):
    """How attempts are played."""

    refused_fields: ClassVar[Mapping[str, str]] = REFUSED_SAMPLING

    memory: MemorySlot = Window()
    """How much of the past a prompt shows."""
    template: TemplateSlot = PromptTemplate()
    """How observations are put to the model."""
    system: str = ""
    """A system prompt: a system message where the model's chat template has them, else a line before everything. Empty
    = none but what the chat template says by itself."""
    action_rule: ActionRuleSlot = WholeResponse()
    """How actions are read out of responses."""
    plan: PlanSlot = Flat()
    """Who is attempted, how often and with what guidance, and which groups are compared."""
    max_tokens: Annotated[int, Field(ge=1)] = 16
    """Most tokens of a response."""
    temperature: Annotated[float, Field(gt=0)] = 1.0
    """Divides the logits, in the engine and in the learner."""
    workers: Annotated[int, Field(ge=0)] | Literal["auto"] = "auto"
    """Processes that environments run in; 0 = in this one, without a time limit or a wall around them. auto = 0 for the
    environments that come with groupwise, 1 for others."""
    env_timeout: Annotated[float, Field(gt=0)] = 30.0
    """Seconds an environment in a worker process may take for one action."""
    lag: Literal[0, 1, "free"] = 0
    """Whether attempts are played while the learner learns. 0 = no. 1 = those of the next update are, with exactly the
    weights of the update before, and the run repeats itself to the bit. free = attempts also go on while weights are
    handed over, and the run does not repeat itself."""
    max_age: Annotated[int, Field(ge=1)] = 1
    """At a lag above 0: how many versions the weights may lie back that sampled an attempt when it is learnt from. With
    `free`, attempts are asked for that much ahead; what was asked for is never discarded."""
    corrects_lag: bool = True
    """Whether, at a lag above 0, the loss gets truncated importance weights (`truncate`, where its `old` is the learner
    and it corrects nothing yet) and the filters one on `staleness`, with `max_age`."""

    @field_validator("lag", mode="before")
    @classmethod
    def _is_known_lag(cls, value: object) -> object:
        if isinstance(value, bool) or value not in (0, 1, "free"):
            raise ValueError(f'found {value!r}; give 0 (play, then learn), 1 (play ahead by one update) or "free"')
        return value

    @field_validator("workers", mode="before")
    @classmethod
    def _is_number_or_auto(cls, value: object) -> object:
        if value != "auto" and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
            raise ValueError(f'found {value!r}; give a number of processes, 0 or more, or "auto"')
        return value

    @model_validator(mode="after")
    def _tags_are_asked_for(self) -> RolloutConfig:
        if isinstance(self.action_rule, Tagged) != self.template.asks_for_tags:
            raise ValueError(
                "action_rule 'tagged' and a template that asks for tags (template.thoughts, or the published_template) "
                "go together: the one reads what the other asks for; set both or neither"
            )
        return self

    @model_validator(mode="after")
    def _choices_are_numbered(self) -> RolloutConfig:
        if isinstance(self.action_rule, Choice) and getattr(self.template, "show_admissible", "") != "numbered":
            raise ValueError(
                "action_rule 'choice' needs the actions' numbers in the prompt; set template.show_admissible to "
                '"numbered"'
            )
        return self


class TrainingConfig(Part):
    """How long a run is and what an update holds."""

    updates: Annotated[int, Field(ge=0)] = 20
    """Updates to make."""
    tasks: Annotated[int, Field(ge=1)] = 16
    """Tasks of an update."""
    curriculum: CurriculumSlot = Shuffled()
    """Which task comes next."""
    learner: LearnerSlot = LearnerConfig()
    """Who updates the weights, and how."""
    weight_transfer: WeightTransferSlot = InMemory()
    """How weights come from the learner to the engine."""
    checkpoint_every: Annotated[int, Field(ge=1)] = 5
    """Updates between checkpoints; the last update always has one."""
    min_survivors: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Share of an update's attempts that must end without a fault; below it the run stops."""


class EvaluationConfig(Part):
    """How the policy is evaluated."""

    refused_fields: ClassVar[Mapping[str, str]] = REFUSED_SAMPLING

    split: str = "test"
    """Panel of tasks, disjoint from training's."""
    tasks: Annotated[int, Field(ge=0)] = 200
    """How many of its tasks, from the first; 0 = no evaluation."""
    every: Annotated[int, Field(ge=0)] = 0
    """Updates between evaluations; 0 = only before the first update and after the last."""
    patience: Annotated[int, Field(ge=0)] = 0
    """Evaluations in a row without a higher success after which the run ends early; 0 = it makes all its updates."""
    attempts: Annotated[int, Field(ge=1)] = 1
    """Attempts at each."""
    temperature: Annotated[float, Field(ge=0)] = 0.4
    """Divides the logits; 0 = always the likeliest token."""


class CheckpointsConfig(Part):
    """Which checkpoints stay in the run's folder."""

    keep: Literal["all", "best"] | Annotated[int, Field(ge=1)] = "all"
    """all = every one that `training.checkpoint_every` makes. A number = so many of the newest, and the best. best =
    the latest and the best alone. The best has the highest success on the evaluation's panel; unless all are kept, it
    is also saved where no checkpoint was due. The policy that a loss compares with always stays."""

    @field_validator("keep", mode="before")
    @classmethod
    def _is_known(cls, value: object) -> object:
        if value not in ("all", "best") and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise ValueError(f'found {value!r}; give "all", "best" or how many of the newest stay, 1 or more')
        return value


class WarmStartConfig(Part):
    """A supervised start from expert attempts."""

    tasks: Annotated[int, Field(ge=1)] = 200
    """Training tasks that the expert plays."""
    epochs: Annotated[int, Field(ge=1)] = 2
    """Passes over its steps."""
    noise: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of steps at which the attempt strays, so that the expert shows how to recover: some action that it has been
    offered so far, possible now or not. These steps are not learnt from."""
    sloppiness: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of steps at which the teacher does anything that is possible, and is imitated in it: a teacher that knows
    the way and often does not take it leaves something to learn."""
    observation_weight: Annotated[float, Field(ge=0)] = 0.0
    """Weight of observation tokens beside the expert's; above 0 a fresh model learns sooner to copy what it reads."""
    learning_rate: Annotated[float, Field(gt=0)] = 3e-3
    """Step size of AdamW after a short warm-up; it falls to a twentieth along a cosine."""
    batch_tokens: Annotated[int, Field(ge=1)] = 512
    """Distinct tokens of an optimiser step."""


class RunConfig(Part):
    """A run, whole."""

    seed: int = 0
    """Root of the tree of seeds."""
    algorithm: Algorithm
    """What makes the method."""
    made_by: Mapping[str, Any] | None = None
    """The section [algorithm] as it was written, with a recipe's name and options: what reports call the method. Only
    a run's own config.toml has it, and only [algorithm] is run."""
    device: str = "auto"
    """Where the model computes: cpu, cuda, cuda:1; auto = a GPU where there is one."""
    threads: Annotated[int, Field(ge=0, le=65536)] = 0
    """Threads that torch computes with; 0 = its own choice. More than there are free cores is many times slower."""
    shares_cores: bool = False
    """Whether `threads` is a limit (0 = none): fewer are taken where fewer cores are free when the run begins, or
    OMP_NUM_THREADS says fewer. The number is kept with the run, since others give other last digits."""
    env: EnvironmentSlot
    """The tasks and the environments that play them."""
    panel: PathText = ""
    """A panel file, as `groupwise panel ENV --out FILE` writes it; tasks other than those of the file are refused.
    Empty = none."""
    rewards: Annotated[tuple[RewardSlot, ...], Field(min_length=1)] = (EnvironmentReward(),)
    """What steps earn: the sum of these."""
    model: Annotated[ModelPart, Slot("model")]
    """Where the weights come from."""
    engine: EngineSlot = LocalEngine()
    """How responses are sampled."""
    rollout: RolloutConfig = RolloutConfig()
    """How attempts are played."""
    training: TrainingConfig = TrainingConfig()
    """How long the run is and what an update holds."""
    checkpoints: CheckpointsConfig = CheckpointsConfig()
    """Which checkpoints stay."""
    evaluation: EvaluationConfig = EvaluationConfig()
    """How the policy is evaluated."""
    alarms: AlarmsConfig = AlarmsConfig()
    """What the run is watched for, and what then happens."""
    warm_start: WarmStartConfig | None = None
    """A supervised start, if any."""
    trackers: tuple[TrackerSlot, ...] = ()
    """Dashboards that get a copy of the metrics."""

    @model_validator(mode="after")
    def _corrects_lag(self) -> RunConfig:
        if self.rollout.lag and self.rollout.corrects_lag:
            algorithm = correct_lag(
                self.algorithm,
                max_age=self.rollout.max_age,
                knows_versions=VERSIONS in getattr(self.engine, "gives", frozenset()),
            )
            object.__setattr__(self, "algorithm", algorithm)  # frozen from here on
        return self

    @model_validator(mode="after")
    def _takes_small_steps(self) -> RunConfig:
        is_refused = getattr(self.training.learner, "bfloat16_weights", "refused") == "refused"
        if is_refused and getattr(self.model, "trains_in_bfloat16", False):
            raise ValueError(
                "model: all weights would train in bfloat16, where small steps are rounded away; set model.dtype = "
                "'float32', a model.lora_rank, or training.learner.bfloat16_weights"
            )
        return self

    @model_validator(mode="after")
    def _evaluates_what_it_waits_for(self) -> RunConfig:
        evaluation = self.evaluation
        if evaluation.patience and not (evaluation.tasks and evaluation.every):
            name = "every" if evaluation.tasks else "tasks"
            raise ValueError(
                f"evaluation: patience = {evaluation.patience} waits for evaluations between updates, and with {name} "
                f"= 0 there are none; raise evaluation.{name}, or leave out evaluation.patience"
            )
        if self.checkpoints.keep == "best" and not evaluation.tasks:
            raise ValueError(
                'checkpoints: keep = "best" needs evaluations, and with evaluation.tasks = 0 there are none; raise '
                "evaluation.tasks, or set checkpoints.keep = 1 for the latest alone"
            )
        return self

    @property
    def num_workers(self) -> int:
        """How many processes environments run in, with `auto` settled."""
        asked = self.rollout.workers
        return asked if asked != "auto" else 0 if is_ours(self.env) else 1

    @property
    def plan(self) -> AttemptPlan:
        """The attempt plan, with the algorithm's guidance in it."""
        plan, guidance = self.rollout.plan, self.algorithm.guidance
        return plan if guidance is None else Guided(plan=plan, guidance=guidance)

    @property
    def reads_past_attempts(self) -> bool:
        """Whether the run needs the attempts of earlier updates; a plan from elsewhere may ask for them."""
        return self.algorithm.reads_past_attempts or getattr(self.rollout.plan, "reads_past_attempts", True)

    @property
    def needs_words(self) -> bool:
        """Whether the model makes its tokenizer from words; one from elsewhere may."""
        return getattr(self.model, "needs_words", True)

    def words(self) -> tuple[str, ...]:
        """Every word that a prompt or an answer of the run may hold, for a tokenizer made from scratch, if it is."""
        if not self.needs_words:
            return ()
        tags = TAGS if self.rollout.template.asks_for_tags else ()
        of_rollout = (*self.rollout.template.words(), *tags, *split_words(self.rollout.system))
        return (*ask_vocabulary(self.env), *of_rollout, *plan_words(self.plan))


def is_ours(env: object) -> bool:
    """Whether an environment comes with groupwise: its kind stands in the catalogue, and its fields name no module."""
    is_known = isinstance(env, Part) and type(env) in load_catalogue("env").values()
    return is_known and not getattr(env, "names_module", False)


# What an algorithm gets where older weights sample than those that learn: a correction, and a bound on their age.
#
# Both are parts of the algorithm like any other: the run's own settings show them, and reading these again adds
# nothing.


def correct_lag(algorithm: Algorithm, *, max_age: int, knows_versions: bool) -> Algorithm:
    """The algorithm with truncated importance weights and a filter on staleness, where it has nothing of the kind.

    The weights go into a loss whose ratio is taken against the learner: one that is taken against the engine holds the
    gap already. The filter goes where the engine says which version sampled what, and where nothing is recalled: it
    would drop every past attempt, for which replay has a bound of its own.
    """
    changes: dict[str, object] = {}
    loss = algorithm.loss
    if isinstance(loss, PolicyLoss) and lacks_correction(algorithm):
        changes["loss"] = loss.model_copy(update={"corrections": (*loss.corrections, Truncate())})
    has_filter = any(isinstance(part, Staleness) for part in algorithm.filters)
    if knows_versions and not has_filter and algorithm.replay is None:
        changes["filters"] = (*algorithm.filters, Staleness(max_age=max_age))
    return algorithm.model_copy(update=changes) if changes else algorithm


def undo_correction(algorithm: Algorithm, *, max_ages: Collection[int]) -> Algorithm:
    """The algorithm that `correct_lag` was given with one of these ages, if it was; what others wrote stays."""
    loss, filters = algorithm.loss, algorithm.filters
    losses = [loss]
    if isinstance(loss, PolicyLoss):
        losses.insert(0, loss.model_copy(update={"corrections": loss.corrections[:-1]}))
    for lesser, fewer in product(losses, (filters[:-1], filters)):
        before = algorithm.model_copy(update={"loss": lesser, "filters": fewer})
        for max_age, knows_versions in product(max_ages, (True, False)):
            if correct_lag(before, max_age=max_age, knows_versions=knows_versions) == algorithm:
                return before
    return algorithm


def lacks_correction(algorithm: Algorithm) -> bool:
    """Whether the loss takes its ratio against the learner and leaves the gap to the weights that sampled alone."""
    loss = algorithm.loss
    if not isinstance(loss, PolicyLoss) or loss.old != "learner":
        return False
    return not any(OLD_LOGP in getattr(correction, "needs", frozenset()) for correction in loss.corrections)
