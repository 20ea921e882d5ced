"""Checks of a run before its model loads: algorithm, engine, journal, tasks and task sets."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from groupwise.credit import CRITIC_VALUE, CRITIC_VALUES, AtMost, ByHistory
from groupwise.credit.filters import Staleness
from groupwise.credit.function_reward import FunctionReward
from groupwise.data.records import Task
from groupwise.envs.kit.task_set import TaskSetFile
from groupwise.envs.mixture import choose_first_tasks, limit_steps, list_environments
from groupwise.envs.part_queries import ask_max_steps, ask_task_set, check_vocabulary
from groupwise.learner.config import LearnerConfig, ShardedLearnerConfig
from groupwise.learner.weight_sync import InMemory
from groupwise.parts.outside import WITHOUT_TRUST, may_run
from groupwise.parts.part import Part, kind_of, load_catalogue, name_of
from groupwise.parts.slots import CAPABILITIES, ENTROPY, SCORES, TRUNCATION, VERSIONS, Loss, Scorer, check_engine_part
from groupwise.rollout.actions import Choice
from groupwise.rollout.environment_runner import Fault, Host, NoExpert
from groupwise.rollout.plans import TopUp
from groupwise.rollout.prompts import History
from groupwise.rollout.scorers import check_scorers
from groupwise.store.journal import Journal
from groupwise.store.run_folder import JOURNAL, RunPaths
from groupwise.system.errors import ConfigError, FileError, nearest
from groupwise.system.json_text import is_plain
from groupwise.training.config.engine_config import LocalEngine, VllmInProcess, check_uses_servers
from groupwise.training.config.run_config import RunConfig
from groupwise.training.loss_context import check_loss_context

NO_EXPERT = "the environment has no expert to start from; leave out [warm_start]"


def check_algorithm(config: RunConfig) -> Loss:
    """Check that the algorithm has a loss and gets all that it needs; returns the loss."""
    loss = config.algorithm.loss
    if loss is None:
        raise ConfigError("the algorithm has no loss; choose a method that has one, or add [algorithm.loss]")
    check_loss_context(config.algorithm, loss)
    check_scorers(config.algorithm)
    _check_environment_info(config)
    _check_solved_groups(config)
    at_most = [part.rollouts for part in config.algorithm.rollout_filters or () if isinstance(part, AtMost)]
    rollouts = min([config.rollout.group_size, *at_most])
    if config.algorithm.pairing is not None and rollouts < 2:
        raise ConfigError(
            f"algorithm.pairing: {name_of(config.algorithm.pairing)} compares rollouts of one task, but the rollout "
            "filter at_most keeps 1 per task; set its rollouts to at least 2"
        )
    for part in config.algorithm.parts():
        part.check_rollouts(rollouts)
    if config.rollout.lag:
        _check_lag(config)
    _check_minibatches(config, loss)
    _check_critic(config)
    return loss


def _check_critic(config: RunConfig) -> None:
    """Check that parts read what the critic writes, that the learner can train it, and that its values are new."""
    algorithm, critic = config.algorithm, config.algorithm.critic
    for part in algorithm.parts():
        read: frozenset[str] = getattr(part, "reads", frozenset()) & {CRITIC_VALUE, CRITIC_VALUES}
        if read and critic is None:
            raise ConfigError(
                f"algorithm: {name_of(part)} reads {min(read)!r}, which a critic writes; add algorithm.critic, such as "
                '"value_head"'
            )
        if CRITIC_VALUES in read and critic is not None and critic.by == "step":
            raise ConfigError(
                f'algorithm.critic.by: "step" gives no values of tokens, which {name_of(part)} reads; set it to "token"'
            )
    if critic is None:
        return
    if algorithm.replay is not None:
        raise ConfigError(
            "algorithm.replay: replayed rollouts have the values of an older critic; leave out the replay, or choose "
            "a method without a critic"
        )
    learner = config.training.learner
    if "critic" not in inspect.signature(learner.open).parameters:
        raise ConfigError(
            f"training.learner: {name_of(learner)} cannot train the critic; let its `open` take `critic`, or use the "
            'local learner (kind = "local")'
        )
    if critic.owns_trunk and getattr(config.model, "quantise", "no") != "no":
        raise ConfigError(
            f'algorithm.critic: {name_of(critic)} would copy layers of 4 bits; use the critic "value_head", or leave '
            "out model.quantise"
        )


def _check_minibatches(config: RunConfig, loss: Loss) -> None:
    """Check that a loss over whole groups or rollouts does not get mini-batches that divide them."""
    assert isinstance(config.training.learner, Part), "a slot is filled by parts"
    settings = [part for part in config.training.learner.parts() if isinstance(part, LearnerConfig)]
    if all(part.minibatch_samples is None for part in settings):
        return
    whole = "groups" if hasattr(loss, "first_pass") else "rollouts" if loss.unit == "trajectory" else None
    if whole is not None:
        raise ConfigError(
            f"training.learner.minibatch_samples: the loss {name_of(loss)} is over whole {whole}, which mini-batches "
            "of a fixed number of samples divide; use training.learner.minibatches"
        )


def _check_environment_info(config: RunConfig) -> None:
    """Check that the run's environment or a scorer gives the step info that parts read.

    Parts declare `reads`; environments and scorers declare `writes`. Outside ones without `writes` may give anything.
    """
    scorers, known = config.algorithm.scorers or (), load_catalogue("env")
    if not all(hasattr(part, "writes") for part in scorers):
        return
    told = {info_key for env in known.values() for info_key in getattr(env, "writes", ())}
    for environment in list_environments(config.env).values():
        assert isinstance(environment, Part), "a slot is filled by parts"
        if type(environment) not in known.values():
            continue
        written = {info_key for part in (*scorers, environment) for info_key in getattr(part, "writes", ())}
        for part in config.algorithm.parts():
            for info_key in sorted((getattr(part, "reads", frozenset()) & told) - written):
                telling = ", ".join(kind for kind, env in known.items() if info_key in getattr(env, "writes", ()))
                raise ConfigError(
                    f"algorithm: {name_of(part)} reads the step info {info_key!r}, which the environment "
                    f"{kind_of(type(environment))!r} does not give; use one that does ({telling}), or a scorer that "
                    "writes it"
                )


def _check_lag(config: RunConfig) -> None:
    """Check that the engine supports the lag, and that no filter drops its rollouts for their staleness."""
    is_free = config.rollout.lag == "free"
    if is_free and not getattr(config.engine, "supports_inflight_weight_update", False):
        raise ConfigError(
            f'rollout.lag: "free" continues rollouts during weight syncs, which the engine {name_of(config.engine)} '
            "cannot do; set rollout.lag to 1, or use an engine of servers"
        )
    max_staleness = config.rollout.max_staleness if is_free else 1
    for part in config.algorithm.filters:
        if isinstance(part, Staleness) and part.max_staleness < max_staleness:  # all requested rollouts are trained
            raise ConfigError(
                f"algorithm.filters: {name_of(part)} drops rollouts that are more than {part.max_staleness} versions "
                f"old, but rollout.lag samples up to {max_staleness} ahead: slow tasks would be trained less than "
                "others. Raise max_staleness of the filter, lower rollout.max_staleness, or set rollout.lag to 0"
            )


def _check_solved_groups(config: RunConfig) -> None:
    """Check that no part drops solved groups that another part learns from."""
    plan = config.rollout.plan
    assert isinstance(plan, Part), "a slot is filled by parts"
    needing = [part for part in config.algorithm.parts() if getattr(part, "needs_solved_groups", False)]
    places = {"rollout.plan": plan.parts(), "algorithm.filters": config.algorithm.parts()} if needing else {}
    for where, parts in places.items():
        for part in parts:
            if getattr(part, "drops_solved_groups", False):
                raise ConfigError(
                    f"{where}: {name_of(part)} drops the tasks that every rollout solved, but {name_of(needing[0])} "
                    "learns from them; leave out one of the two"
                )


def check_evaluation(config: RunConfig) -> None:
    """Check that environment and engine can do what the task sets of the evaluation ask for."""
    for name, settings in config.evaluation.by_name().items():
        where = config.evaluation.place_of(name)
        if settings.steps is not None:
            try:
                limit_steps(config.env, settings.steps)
            except ConfigError as error:
                raise ConfigError(f"{where}: steps = {settings.steps}, but {error}") from None
        if (settings.top_p < 1 or settings.top_k) and TRUNCATION not in config.engine.gives:
            raise ConfigError(
                f"{where}: top_p and top_k ask for {CAPABILITIES[TRUNCATION]}, which the engine "
                f"{name_of(config.engine)} does not give; leave them out, or use an engine that does"
            )
        environments: list[object] = list(list_environments(config.env).values())
        known: list[object] = list(load_catalogue("env").values())
        written = sorted({info_key for env in environments for info_key in getattr(env, "writes", ())})
        are_listed = all(type(env) in known or hasattr(env, "writes") for env in environments)
        if settings.score and are_listed and settings.score not in written:
            raise ConfigError(
                f"{where}: score = {settings.score!r} is no step info of the environment; "
                f"{nearest(settings.score, written) if written else 'it gives none, so leave score out'}"
            )


def check_words(config: RunConfig) -> None:
    """If the model makes its tokenizer from words, check that environments have a vocabulary."""
    for env in list_environments(config.env).values() if config.needs_words else ():
        check_vocabulary(env)


def check_model(config: RunConfig) -> None:
    """Check the model before it loads; 4-bit layers need the local engine and the local learner."""
    is_quantised = getattr(config.model, "quantise", "no") != "no"
    if is_quantised and not isinstance(config.engine, LocalEngine):
        raise ConfigError(
            f"model.quantise: the engine {name_of(config.engine)} would not load the learner's 4-bit weights; "
            'use the engine of this process ([engine] kind = "local"), or leave model.quantise out'
        )
    if is_quantised and isinstance(config.training.learner, ShardedLearnerConfig):
        raise ConfigError(
            "model.quantise: 4-bit layers cannot be sharded; use the local learner, or leave model.quantise out"
        )
    check = getattr(config.model, "check", None)
    if check is not None:
        check()


def check_journal(folder: Path) -> None:
    paths = RunPaths(folder)
    if not paths.journal.exists():
        return
    try:
        Journal(paths.journal, read_only=True).close()
    except FileError as error:
        if not paths.latest.exists():
            raise
        if not paths.checkpoint(0).is_dir():  # later checkpoints need the journal's updates
            raise FileError(
                f"{error}. The first checkpoint, from which the run could begin again, was not kept; put the journal "
                "back from a copy, or start the run again in another folder"
            ) from None
        raise FileError(
            f"{error}. To begin again from the first checkpoint, move {JOURNAL} and files that begin with its name out "
            f"of {folder}, write `0000` into {paths.latest} and resume"
        ) from None


def check_tasks(config: RunConfig, host: Host) -> dict[str, tuple[Task, ...]]:
    """Check the environments, and return the tasks of each split that the run uses."""
    task_sets = {"train": ask_task_set(config.env, "train")}
    for settings in config.evaluation.by_name().values():
        if settings.split not in task_sets:
            task_sets[settings.split] = ask_task_set(config.env, settings.split)
    tasks = task_sets["train"]
    if not tasks:
        raise ConfigError(f"env: {name_of(config.env)} has no training tasks; give its train task set some")
    for name, settings in config.evaluation.by_name().items():
        if not task_sets[settings.split]:
            where = config.evaluation.place_of(name)
            raise ConfigError(
                f"{where}.split: {name_of(config.env)} has no tasks in {settings.split!r}; choose another split"
            )
    ask_max_steps(config.env)
    first_tasks = choose_first_tasks(config.env, tasks)
    check_first_tasks(config, host, first_tasks)
    for task in first_tasks.values() if config.warm_start is not None else ():
        _check_expert(host, task, NO_EXPERT)
    for part in config.algorithm.scorers or ():
        for task in first_tasks.values():
            _check_asked_of_world(part, host, task)
    _check_past_rollouts(config, tasks)
    if config.rollout.lag:
        for task in tasks:
            if not is_plain(dict(task.payload)):
                raise ConfigError(
                    f"env: the payload of task {task.id!r} is not JSON, but rollout.lag saves tasks in the journal; "
                    "give JSON values, or set rollout.lag to 0"
                )
    return task_sets


def _check_expert(host: Host, task: Task, sentence: str) -> None:
    """Raise `sentence` if there is no expert; an environment that fails here may have one."""
    if isinstance(host.open({0: task})[0], Fault):
        return
    if isinstance(host.ask_experts([0])[0], NoExpert):
        raise ConfigError(sentence)
    host.close([0])


def _check_asked_of_world(scorer: Scorer, host: Host, task: Task) -> None:
    """Check that the environment supports what a scorer asks of it."""
    needs = getattr(scorer, "needs", ())
    if "expert" in needs:
        sentence = (
            "the environment has no expert, but algorithm.scorers asks it ({}); take another one, or leave it out"
        )
        _check_expert(host, task, sentence.format(name_of(scorer)))
    if "fork" in needs and not isinstance(host.open({0: task})[0], Fault):
        copy = host.fork(0, [1])[1]
        host.close([0, 1])
        if isinstance(copy, Fault):
            raise ConfigError(
                f"algorithm.scorers: {name_of(scorer)} continues rollouts in copies of their environments, and this "
                f"one cannot be copied ({copy.message}); give the environment fork(), or leave the scorer out"
            )


def _check_past_rollouts(config: RunConfig, tasks: Sequence[Task]) -> None:
    """Check that past rollouts can be found by task, and that the plan does not drop what replay needs."""
    assert isinstance(config.rollout.plan, Part), "a slot is filled by parts"
    if config.algorithm.replay is not None and any(isinstance(part, TopUp) for part in config.rollout.plan.parts()):
        raise ConfigError(
            "rollout.plan: top_up drops zero-variance groups, which algorithm.replay is for; use the plan flat, or "
            "leave out algorithm.replay"
        )
    tasks_again = ask_task_set(config.env, "train") if config.reads_past_rollouts else tasks
    for task, again in zip(tasks, tasks_again, strict=False):
        if task.id != again.id:
            raise ConfigError(
                f"env: the same training task has the id {task.id!r} at first and {again.id!r} later, so past rollouts "
                "cannot be found by task. Derive ids from the content (`Task.create`), or leave out algorithm.replay "
                "and algorithm.hint"
            )


def check_task_sets(config: RunConfig) -> None:
    if config.task_set:
        assert isinstance(config.env, Part), "the slot is filled by parts"
        TaskSetFile.read(Path(config.task_set)).check(config.env, name=config.task_set)


def check_first_tasks(config: RunConfig, host: Host, first_tasks: Mapping[str, Task]) -> None:
    """Check rewards, success and actions on the first task of each environment."""
    functions = [part for part in config.rewards if isinstance(part, FunctionReward)]
    for name, env in list_environments(config.env).items():
        if name not in first_tasks:
            raise ConfigError(f"env ({name}): {name_of(env)} has no training tasks; give its train task set some")
        if not getattr(env, "tells_success", True):
            _check_judged(config, functions, f"env ({name})" if name else "env")
        task = first_tasks[name]
        for part in functions if may_run() else ():  # without trust no function is loaded
            if missing := part.find_missing_column(task.payload):
                there = ", ".join(sorted(task.payload)) or "none"
                raise ConfigError(
                    f"rewards: the function {part.function!r} takes {missing!r}, which is no column of task "
                    f"{task.id!r}; its columns are {there}: add it to the data, or give the parameter a default"
                )
    if len(first_tasks) > 1 and isinstance(config.rollout.action_parser, Choice):
        _check_choices(host, first_tasks)


def _check_judged(config: RunConfig, functions: Sequence[FunctionReward], whose: str) -> None:
    """Check that a reward judges the tasks, and says which rollouts succeed if there are evaluations."""
    if not functions:
        raise ConfigError(
            f'{whose}: verifier = "none" needs a reward that judges, and there is none; add [[rewards]] with kind = '
            '"function", or choose a verifier'
        )
    if config.evaluation.tasks and all(part.solved_at is None for part in functions):
        raise ConfigError(
            f'{whose}: with verifier = "none" an evaluation cannot say which rollouts succeeded; set solved_at of the '
            "reward that judges, or evaluation.tasks = 0"
        )


def _check_choices(host: Host, first_tasks: Mapping[str, Task]) -> None:
    """Check that all environments list their actions, or none, if actions are chosen by number."""
    numbered = dict(enumerate(first_tasks.items()))
    shown = host.open({number: task for number, (_, task) in numbered.items()})
    host.close([number for number, seen in shown.items() if not isinstance(seen, Fault)])
    lists = {
        numbered[number][0]: bool(seen.admissible) for number, seen in shown.items() if not isinstance(seen, Fault)
    }
    if len(set(lists.values())) == 2:
        listing, silent = (", ".join(name for name, has in lists.items() if has is wanted) for wanted in (True, False))
        raise ConfigError(
            f"env: rollout.action_parser 'choice' fits {listing}, which lists its possible actions, but not {silent}, "
            "whose actions are free text. Mix environments that fit one action parser, or set rollout.action_parser to "
            '"whole_response" or "tagged"'
        )


LONG = 1000
"""Steps of a rollout that is longer than any bounded history."""


def list_notices(config: RunConfig) -> list[str]:
    """List warnings about settings that are no errors, one line each."""
    notices = []
    if config.rollout.lag == "free":
        notices.append(
            'rollout.lag = "free": results depend on timing, so neither a second run nor a resumed one gives the same '
            "numbers; rollout.lag = 1 is bit-exact reproducible"
        )
    depth = max((part.depth for part in config.algorithm.parts() if isinstance(part, ByHistory)), default=None)
    if depth is not None and (counts := count_steps_shown(config.rollout.history)) != (depth, depth):
        smallest, largest = counts
        shown = f"{smallest} past steps" if smallest == largest else f"{smallest} to {largest} past steps"
        notices.append(
            f"steps are compared by up to {depth} earlier states, while prompts show "
            f"{'all past steps' if largest is None else shown}; the published method takes the same number for both "
            "(algorithm.depth, rollout.history)"
        )
    names = list(list_environments(config.env))
    mixing = next((part for part in config.algorithm.parts() if part.mixes_tasks), None)
    if len(names) > 1 and mixing is not None:
        notices.append(
            f"{name_of(mixing)} compares across tasks, and so across the environments {', '.join(names)}: their "
            "rewards should have the same scale"
        )
    return notices


def describe_unread_rewards(config: RunConfig) -> str:
    """A warning that reward functions were not loaded without trust; empty if there are none."""
    places = [part.function for part in config.rewards if isinstance(part, FunctionReward)]
    if may_run() or not places:
        return ""
    return f"rewards: {', '.join(places)} {WITHOUT_TRUST}, so its signature was not checked"


def count_steps_shown(history: History) -> tuple[int, int | None]:
    """Count the past steps that prompts of a long rollout show: the smallest and the largest number, None = all.

    >>> from groupwise.rollout.prompts import AnchoredWindow, Full, Window
    >>> count_steps_shown(Window(steps=2)), count_steps_shown(AnchoredWindow(low=2, high=6)), count_steps_shown(Full())
    ((2, 2), (3, 6), (1000, None))
    """
    shown = [past - history.first_shown(past) for past in range(LONG, 2 * LONG)]
    return min(shown), None if max(shown) >= LONG else max(shown)


def check_engine_gives(config: RunConfig, *, device: str) -> None:
    """Check that the engine supports the device, and gives what the run reads."""
    check_engine_part(config.engine)
    for gift, place, reader, instead in _list_needs(config):
        if gift in config.engine.gives:
            continue
        unmet = f"{place}: {reader} reads {CAPABILITIES[gift]}, which the engine {name_of(config.engine)} does not give"
        if (gift, place) not in _MEASURED:
            raise ConfigError(f"{unmet}; use an engine that does{instead}")
        if config.rollout.lag:
            raise ConfigError(
                f"{unmet}. The learner can measure them, but only with the weights that sampled. At rollout.lag = "
                f"{config.rollout.lag!r} it has newer ones. Set rollout.lag to 0, or use an engine that gives them"
            )
    if isinstance(config.engine, LocalEngine | VllmInProcess):
        check_uses_servers(config.engine)
    config.engine.check_device(device)
    # On a GPU, sampling and learning at the same time needs two processes: torch selects attention kernels per process,
    # and the engine changes the selection while it decodes.
    if config.rollout.lag and device == "cuda" and isinstance(config.engine, LocalEngine):
        raise ConfigError(
            f"rollout.lag: the engine {name_of(config.engine)} shares a process with the learner, so on a GPU the "
            "learner's attention kernels would depend on timing. Give the engine its own process "
            '([engine] kind = "server"), or set rollout.lag to 0'
        )
    _check_sharing(config)
    if isinstance(config.engine, VllmInProcess) and isinstance(config.training.learner, ShardedLearnerConfig):
        raise ConfigError(
            "engine: vLLM in the trainer's process starts a process group, which conflicts with the sharded learner; "
            'use servers ([engine] kind = "vllm")'
        )
    check_model = getattr(config.engine, "check_model", None)  # some engines cannot load every model
    if check_model is not None:
        check_model(config.model)


def needs_measured_entropies(config: RunConfig) -> bool:
    """Whether the learner must measure entropies of sampled tokens, because the engine does not give them."""
    return any(need not in config.engine.gives for need, place, *_ in _list_needs(config) if (need, place) in _MEASURED)


def _check_sharing(config: RunConfig) -> None:
    """Check that the engine can read the learner's own weights, if `share_weights` is set."""
    if not getattr(config.engine, "share_weights", False):
        return
    learner, transfer = config.training.learner, config.training.weight_sync
    if config.rollout.lag:
        reason = f"they change during rollouts (rollout.lag = {config.rollout.lag!r}); set rollout.lag to 0"
    elif type(learner) is not LearnerConfig:
        reason = f'the learner {name_of(learner)} does not keep them whole in one place; use kind = "local"'
    elif not isinstance(transfer, InMemory):
        reason = f"{name_of(transfer)} would copy them onto themselves; use the weight_sync in_memory"
    elif config.engine.precision == "bfloat16" and getattr(config.model, "dtype", None) == "float32":
        reason = (
            "they are float32 and the engine would compute in bfloat16; set model.dtype = 'bfloat16', or "
            "engine.precision = 'float32', which leaves weights as loaded"
        )
    else:
        return
    raise ConfigError(f"engine.share_weights: the engine cannot read the learner's own weights: {reason}")


_MEASURED = {(ENTROPY, f"algorithm.{place}") for place in ("shapers", "token_credit", "loss", "filters")}
"""Needs that the learner meets if the engine does not. Scorers read entropies of responses that they sample."""


def _list_needs(config: RunConfig) -> Iterator[tuple[str, str, str, str]]:
    """Per need: its name, the reader's place in the run file, the reader's name, and another fix."""
    algorithm = config.algorithm
    inside, loss, replay = algorithm.token_credit, algorithm.loss, algorithm.replay
    readers: dict[tuple[str, str], Iterable[object]] = {
        ("shapers", "shaper"): algorithm.shapers,
        ("token_credit", "part"): inside.parts() if isinstance(inside, Part) else (),
        ("scorers", "part"): algorithm.scorers or (),
        ("loss", "part"): loss.parts() if isinstance(loss, Part) else (),
        ("filters", "filter"): algorithm.filters,
    }
    for (place, word), parts in readers.items():
        for part in parts:
            for need, declaration in ((ENTROPY, "needs_entropy"), (VERSIONS, "needs_versions")):
                if getattr(part, declaration, False):
                    yield need, f"algorithm.{place}", name_of(part), f", or leave the {word} out"
    if replay is not None:
        for need in (SCORES, VERSIONS):
            yield need, "algorithm.replay", name_of(replay), ", or leave out algorithm.replay"
    yield SCORES, "engine", "the check after each weight sync", ""
