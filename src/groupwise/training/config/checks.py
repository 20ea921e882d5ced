"""What is refused before a run's model loads: an algorithm, a journal, tasks or panels that a run cannot work with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from groupwise.credit import AtMost, ByHistory
from groupwise.credit.filters import Staleness
from groupwise.credit.function_reward import FunctionReward
from groupwise.data.records import Task
from groupwise.envs.kit.panel import PanelFile
from groupwise.envs.mixture import choose_first_tasks, list_environments
from groupwise.envs.part_queries import ask_max_steps, ask_panel, check_vocabulary
from groupwise.learner.config import LearnerConfig, ShardedLearnerConfig
from groupwise.learner.weight_sync import InMemory
from groupwise.parts.outside import WITHOUT_TRUST, may_run
from groupwise.parts.part import Part, kind_of, load_catalogue, name_of
from groupwise.parts.slots import CAPABILITIES, ENTROPY, SCORES, VERSIONS, Loss, Measure, check_engine_part
from groupwise.rollout.actions import Choice
from groupwise.rollout.environment_runner import Fault, Host, NoExpert
from groupwise.rollout.measures import check_measures
from groupwise.rollout.plans import TopUp
from groupwise.rollout.prompts import Memory
from groupwise.store.journal import Journal
from groupwise.store.run_folder import JOURNAL, RunPaths
from groupwise.system.errors import ConfigError, FileError
from groupwise.system.json_text import is_plain
from groupwise.training.config.engine_config import LocalEngine, VllmInProcess, check_uses_servers
from groupwise.training.config.run_config import RunConfig
from groupwise.training.loss_context import check_loss_context

NO_EXPERT = "the environment has no expert to start from; leave out [warm_start]"


def check_algorithm(config: RunConfig) -> Loss:
    """Refuse an algorithm that has no loss, needs what nothing computes, or another number of attempts; its loss."""
    loss, plan = config.algorithm.loss, config.rollout.plan
    if loss is None:
        raise ConfigError("the algorithm has no loss; choose a recipe that has one, or add [algorithm.loss]")
    check_loss_context(config.algorithm, loss)
    check_measures(config.algorithm)
    _check_environment_facts(config)
    _check_solved_groups(config)
    at_most = [part.attempts for part in config.algorithm.admissions or () if isinstance(part, AtMost)]
    attempts = min([plan.attempts, *at_most])
    if config.algorithm.pairing is not None and attempts < 2:
        raise ConfigError(
            f"algorithm.pairing: {name_of(config.algorithm.pairing)} holds attempts at one task against each other, "
            f"and each task gets {attempts}; give rollout.plan.attempts, and at_most where it is used, at least 2"
        )
    for part in config.algorithm.parts():
        part.check_attempts(attempts)
    if config.rollout.lag:
        _check_lag(config)
    return loss


def _check_environment_facts(config: RunConfig) -> None:
    """Refuse a part that reads a fact which environments tell, where the run's own does not and no measure writes it.

    A part says what it reads in `reads`, an environment what it tells in `writes`. One from outside groupwise without
    that may tell anything, and so may a measure.
    """
    measures, known = config.algorithm.measures or (), load_catalogue("env")
    if not all(hasattr(part, "writes") for part in measures):
        return
    told = {fact for env in known.values() for fact in getattr(env, "writes", ())}
    for environment in list_environments(config.env).values():
        assert isinstance(environment, Part), "a slot is filled by parts"
        if type(environment) not in known.values():
            continue
        written = {fact for part in (*measures, environment) for fact in getattr(part, "writes", ())}
        for part in config.algorithm.parts():
            for fact in sorted((getattr(part, "reads", frozenset()) & told) - written):
                telling = ", ".join(kind for kind, env in known.items() if fact in getattr(env, "writes", ()))
                raise ConfigError(
                    f"algorithm: {name_of(part)} reads the fact {fact!r}, which the environment "
                    f"{kind_of(type(environment))!r} does not tell; use one that does ({telling}), or a measure that "
                    "writes it"
                )


def _check_lag(config: RunConfig) -> None:
    """Refuse an overlap that the engine cannot play, or whose attempts would be dropped for their age."""
    is_free = config.rollout.lag == "free"
    if is_free and not getattr(config.engine, "supports_inflight_weight_update", False):
        raise ConfigError(
            f'rollout.lag: "free" lets attempts go on while weights are handed over, which the engine '
            f"{name_of(config.engine)} cannot; set rollout.lag to 1, or use an engine of servers"
        )
    max_age = config.rollout.max_age if is_free else 1
    for part in config.algorithm.filters:
        if isinstance(part, Staleness) and part.max_age < max_age:  # what was asked for is trained
            raise ConfigError(
                f"algorithm.filters: {name_of(part)} drops attempts that weights more than {part.max_age} versions "
                f"back have sampled, and rollout.lag plays up to {max_age} ahead, so that slow tasks would be trained "
                "less than they are asked for; raise the one, lower rollout.max_age, or set rollout.lag to 0"
            )


def _check_solved_groups(config: RunConfig) -> None:
    """Refuse to leave out the groups that a part of the algorithm learns from."""
    plan = config.rollout.plan
    assert isinstance(plan, Part), "a slot is filled by parts"
    needing = [part for part in config.algorithm.parts() if getattr(part, "needs_solved_groups", False)]
    places = {"rollout.plan": plan.parts(), "algorithm.filters": config.algorithm.parts()} if needing else {}
    for where, parts in places.items():
        for part in parts:
            if getattr(part, "drops_solved_groups", False):
                raise ConfigError(
                    f"{where}: {name_of(part)} leaves out the tasks that every attempt solved, which "
                    f"{name_of(needing[0])} learns from; leave out the one or the other"
                )


def check_words(config: RunConfig) -> None:
    """Refuse environments without a vocabulary under a model that makes its tokenizer from their words."""
    for env in list_environments(config.env).values() if config.needs_words else ():
        check_vocabulary(env)


def check_model(config: RunConfig) -> None:
    """Refuse a model that says of itself, before it loads, that it cannot be opened; one from elsewhere need not.

    Layers in four bits are refused where engine or learner cannot have the same ones.
    """
    is_quantised = getattr(config.model, "quantise", "no") != "no"
    if is_quantised and not isinstance(config.engine, LocalEngine):
        raise ConfigError(
            f"model.quantise: the engine {name_of(config.engine)} would load other numbers than the four bits that the "
            'adapter is trained beside; use the engine of this process ([engine] kind = "local"), or leave '
            "model.quantise out"
        )
    if is_quantised and isinstance(config.training.learner, ShardedLearnerConfig):
        raise ConfigError(
            "model.quantise: layers in four bits cannot be divided over ranks; take the local learner, or leave "
            "model.quantise out"
        )
    check = getattr(config.model, "check", None)
    if check is not None:
        check()


def check_journal(folder: Path) -> None:
    """Refuse a journal that this version cannot go on with, before a model loads."""
    paths = RunPaths(folder)
    if not paths.journal.exists():
        return
    try:
        Journal(paths.journal, read_only=True).close()
    except FileError as error:
        if not paths.latest.exists():
            raise
        if not paths.checkpoint(0).is_dir():  # no other goes on without the journal's updates
            raise FileError(
                f"{error}. Its first checkpoint, from which the run could begin again, was not kept: put the journal "
                "back from a copy, or start the run again in another folder"
            ) from None
        raise FileError(
            f"{error}. To begin again from its first checkpoint, move {JOURNAL} and what begins with its name out of "
            f"{folder}, write `0000` into {paths.latest} and resume"
        ) from None


def check_tasks(config: RunConfig, host: Host) -> dict[str, tuple[Task, ...]]:
    """Refuse environments that cannot do what is asked of them; the tasks of each split that the run uses."""
    panels = {"train": ask_panel(config.env, "train")}
    if config.evaluation.tasks and config.evaluation.split not in panels:
        panels[config.evaluation.split] = ask_panel(config.env, config.evaluation.split)
    tasks = panels["train"]
    if not tasks:
        raise ConfigError(f"env: {name_of(config.env)} has no training tasks; give its train panel some")
    ask_max_steps(config.env)
    first_tasks = choose_first_tasks(config.env, tasks)
    check_first_tasks(config, host, first_tasks)
    for task in first_tasks.values() if config.warm_start is not None else ():
        _check_expert(host, task, NO_EXPERT)
    for part in config.algorithm.measures or ():
        for task in first_tasks.values():
            _check_asked_of_world(part, host, task)
    _check_past_attempts(config, tasks)
    if config.rollout.lag:
        for task in tasks:
            if not is_plain(dict(task.payload)):
                raise ConfigError(
                    f"env: the payload of task {task.id!r} holds what JSON cannot write, and rollout.lag keeps tasks "
                    "in the journal with the attempts that were played ahead; give JSON values, or set rollout.lag to 0"
                )
    return panels


def _check_expert(host: Host, task: Task, sentence: str) -> None:
    """Refuse, with a sentence, where there is no expert. An environment that fails here says nothing of whether it has
    one."""
    if isinstance(host.open({0: task})[0], Fault):
        return
    if isinstance(host.ask_experts([0])[0], NoExpert):
        raise ConfigError(sentence)
    host.close([0])


def _check_asked_of_world(measure: Measure, host: Host, task: Task) -> None:
    """Refuse a measure that asks of environments what they cannot do."""
    needs = getattr(measure, "needs", ())
    if "expert" in needs:
        sentence = "the environment has no expert, whom algorithm.measures asks ({}); take another one, or leave it out"
        _check_expert(host, task, sentence.format(name_of(measure)))
    if "fork" in needs and not isinstance(host.open({0: task})[0], Fault):
        copy = host.fork(0, [1])[1]
        host.close([0, 1])
        if isinstance(copy, Fault):
            raise ConfigError(
                f"algorithm.measures: {name_of(measure)} lets attempts go on from copies of their worlds, and this one "
                f"cannot be copied ({copy.message}); give the environment fork(), or leave the measure out"
            )


def _check_past_attempts(config: RunConfig, tasks: Sequence[Task]) -> None:
    """Refuse a run whose past attempts could not be found again by their tasks, or would be left out by its plan."""
    assert isinstance(config.rollout.plan, Part), "a slot is filled by parts"
    if config.algorithm.replay is not None and any(isinstance(part, TopUp) for part in config.rollout.plan.parts()):
        raise ConfigError(
            "rollout.plan: top_up leaves out the groups whose attempts all did equally well, which algorithm.replay is "
            "there for; use the plan flat, or leave out algorithm.replay"
        )
    tasks_again = ask_panel(config.env, "train") if config.reads_past_attempts else tasks
    for task, again in zip(tasks, tasks_again, strict=False):
        if task.id != again.id:
            raise ConfigError(
                f"env: asked twice for its training tasks, it calls the same one {task.id!r} and {again.id!r}, so that "
                "past attempts cannot be found by task; derive ids from the content (`Task.create`), or leave out "
                "algorithm.replay and algorithm.guidance"
            )


def check_panels(config: RunConfig) -> None:
    """Refuse tasks that are not those of the run's panel file."""
    if config.panel:
        assert isinstance(config.env, Part), "the slot is filled by parts"
        PanelFile.read(Path(config.panel)).check(config.env, name=config.panel)


# What is refused of tasks before a model loads: rewards that lack a column, nobody who judges, rules that differ.


def check_first_tasks(config: RunConfig, host: Host, first_tasks: Mapping[str, Task]) -> None:
    """Refuse what a task of each environment, by the environment's name, shows to be impossible."""
    functions = [part for part in config.rewards if isinstance(part, FunctionReward)]
    for name, env in list_environments(config.env).items():
        if name not in first_tasks:
            raise ConfigError(f"env ({name}): {name_of(env)} has no training tasks; give its train panel some")
        if not getattr(env, "tells_success", True):
            _check_judged(config, functions, f"env ({name})" if name else "env")
        task = first_tasks[name]
        for part in functions if may_run() else ():  # who only reads a run loads none
            if missing := part.find_missing_column(task.payload):
                there = ", ".join(sorted(task.payload)) or "none"
                raise ConfigError(
                    f"rewards: the function {part.function!r} takes {missing!r}, which is no column of task "
                    f"{task.id!r}; its columns are {there}: add it to the data, or give the parameter a default"
                )
    if len(first_tasks) > 1 and isinstance(config.rollout.action_rule, Choice):
        _check_choices(host, first_tasks)


def _check_judged(config: RunConfig, functions: Sequence[FunctionReward], whose: str) -> None:
    """Refuse tasks that nobody says the success of, where that is asked for, or that nobody pays."""
    if not functions:
        raise ConfigError(
            f'{whose}: verifier = "none" leaves it to rewards to judge, and there is none that does; add [[rewards]] '
            'with kind = "function", or choose a verifier'
        )
    if config.evaluation.tasks and all(part.solved_at is None for part in functions):
        raise ConfigError(
            f'{whose}: with verifier = "none" nobody says which attempts of an evaluation succeeded; set solved_at of '
            "the reward that judges, or evaluation.tasks = 0"
        )


def _check_choices(host: Host, first_tasks: Mapping[str, Task]) -> None:
    """Refuse to choose by number where some of the environments list what can be chosen and others do not."""
    numbered = dict(enumerate(first_tasks.items()))
    shown = host.open({number: task for number, (_, task) in numbered.items()})
    host.close([number for number, seen in shown.items() if not isinstance(seen, Fault)])
    lists = {
        numbered[number][0]: bool(seen.admissible) for number, seen in shown.items() if not isinstance(seen, Fault)
    }
    if len(set(lists.values())) == 2:
        listing, silent = (", ".join(name for name, has in lists.items() if has is wanted) for wanted in (True, False))
        raise ConfigError(
            f"env: rollout.action_rule 'choice' fits {listing}, which lists its possible actions, but not {silent}, "
            "whose actions are free text; mix environments with one action rule, or set rollout.action_rule to "
            '"whole_response" or "tagged"'
        )


# Warnings about a run file: settings that are no error and still go against the method they are for.

LONG = 1000
"""Steps of an attempt that is longer than any bounded memory."""


def list_notices(config: RunConfig) -> list[str]:
    """List what is worth a look before the run begins, a line each."""
    notices = []
    if config.rollout.lag == "free":
        notices.append(
            'rollout.lag = "free": which weights sample what depends on the clock, so that neither a second run nor a '
            "resumed one comes to the same numbers; rollout.lag = 1 repeats itself to the bit"
        )
    depth = max((part.depth for part in config.algorithm.parts() if isinstance(part, ByHistory)), default=None)
    if depth is not None and (counts := count_steps_shown(config.rollout.memory)) != (depth, depth):
        smallest, largest = counts
        shown = f"{smallest} past steps" if smallest == largest else f"{smallest} to {largest} past steps"
        notices.append(
            f"steps are compared by up to {depth} earlier states, while prompts show "
            f"{'all past steps' if largest is None else shown}; the published method takes the same number for both "
            "(algorithm.depth, rollout.memory)"
        )
    names = list(list_environments(config.env))
    mixing = next((part for part in config.algorithm.parts() if part.mixes_tasks), None)
    if len(names) > 1 and mixing is not None:
        notices.append(
            f"{name_of(mixing)} compares across tasks, and so across the environments {', '.join(names)}: what they "
            "pay should be on one scale"
        )
    return notices


def describe_unread_rewards(config: RunConfig) -> str:
    """Say that reward functions were not looked at, where this process only reads run files; else nothing."""
    places = [part.function for part in config.rewards if isinstance(part, FunctionReward)]
    if may_run() or not places:
        return ""
    return f"rewards: {', '.join(places)} {WITHOUT_TRUST}, so that nobody has seen whether it can be called"


def count_steps_shown(memory: Memory) -> tuple[int, int | None]:
    """Count the past steps that prompts of a long attempt show: the smallest and the largest number, None = all.

    >>> from groupwise.rollout.prompts import AnchoredWindow, Full, Window
    >>> count_steps_shown(Window(steps=2)), count_steps_shown(AnchoredWindow(low=2, high=6)), count_steps_shown(Full())
    ((2, 2), (3, 6), (1000, None))
    """
    shown = [past - memory.first_shown(past) for past in range(LONG, 2 * LONG)]
    return min(shown), None if max(shown) >= LONG else max(shown)


# What a run needs of its engine; one that does not give it is refused before a model loads.


def check_engine_gives(config: RunConfig, *, device: str) -> None:
    """Refuse an engine that cannot work where the learner computes, or that does not give what the run reads."""
    check_engine_part(config.engine)
    for gift, place, reader, instead in _list_needs(config):
        if gift not in config.engine.gives:
            raise ConfigError(
                f"{place}: {reader} reads {CAPABILITIES[gift]}, which the engine {name_of(config.engine)} does not "
                f"give; use an engine that does{instead}"
            )
    if isinstance(config.engine, LocalEngine | VllmInProcess):
        check_uses_servers(config.engine)
    config.engine.check_device(device)
    _check_overlap(config, device)
    _check_sharing(config)
    if isinstance(config.engine, VllmInProcess) and isinstance(config.training.learner, ShardedLearnerConfig):
        raise ConfigError(
            "engine: vLLM in the trainer's own process starts a process group, which a sharded learner would take for "
            'its own; use servers ([engine] kind = "vllm")'
        )
    check_model = getattr(config.engine, "check_model", None)  # of engines that cannot take every model
    if check_model is not None:
        check_model(config.model)


def _check_overlap(config: RunConfig, device: str) -> None:
    """Refuse to play and learn at once in one process on a GPU: torch's choice of attention kernels is the process's.

    The engine changes it while it decodes in lanes, so that the learner's own kernels would depend on the clock.
    """
    if config.rollout.lag and device == "cuda" and isinstance(config.engine, LocalEngine):
        raise ConfigError(
            f"rollout.lag: the engine {name_of(config.engine)} shares a process with the learner, and on a GPU the "
            "attention kernels that learn would then depend on the clock; give the engine a process of its own "
            '([engine] kind = "server"), or set rollout.lag to 0'
        )


def _check_sharing(config: RunConfig) -> None:
    """Refuse to share weights where the engine may read them while they change, or they are not what is handed over."""
    if not getattr(config.engine, "share_weights", False):
        return
    learner, transfer = config.training.learner, config.training.weight_transfer
    if config.rollout.lag:
        reason = f"attempts are played while these change (rollout.lag = {config.rollout.lag!r}); set rollout.lag to 0"
    elif type(learner) is not LearnerConfig:
        reason = f'the learner {name_of(learner)} does not have them whole in one place; use kind = "local"'
    elif not isinstance(transfer, InMemory):
        reason = f"{name_of(transfer)} would carry them from there to where they are; use the weight_transfer in_memory"
    elif config.engine.precision == "bfloat16" and getattr(config.model, "dtype", None) == "float32":
        reason = (
            "they are float32 and the engine would compute in bfloat16; set model.dtype = 'bfloat16', or "
            "engine.precision = 'float32', which leaves weights as loaded"
        )
    else:
        return
    raise ConfigError(f"engine.share_weights: the engine cannot read the learner's own weights, since {reason}")


def _list_needs(config: RunConfig) -> Iterator[tuple[str, str, str, str]]:
    """What is needed, the place in the run file of who needs it, its name, and what else could be done."""
    algorithm = config.algorithm
    inside, loss, replay = algorithm.token_credit, algorithm.loss, algorithm.replay
    readers: dict[tuple[str, str], Iterable[object]] = {
        ("shapers", "shaper"): algorithm.shapers,
        ("token_credit", "part"): inside.parts() if isinstance(inside, Part) else (),
        ("measures", "part"): algorithm.measures or (),
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
    yield SCORES, "engine", "the check after each hand-over of weights", ""
