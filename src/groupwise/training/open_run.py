"""Open a run: its environments, model, engine, learner, journal and parts, after checking the settings."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from itertools import count
from operator import itemgetter
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from groupwise.agents.chat import AgentPrompter
from groupwise.data.records import Task
from groupwise.data.seeds import seed_of
from groupwise.engines.engine import ClosingEngine, Engine, ReplicatedEngine, SubmittingEngine
from groupwise.engines.model_source import ModelSource
from groupwise.engines.static_cache.engine import StaticCacheEngine
from groupwise.envs.kit.task_set import task_set_hash
from groupwise.envs.mixture import Mixture, find_environment
from groupwise.envs.part_queries import ask_instruction
from groupwise.learner.config import ShardedLearnerConfig
from groupwise.learner.optimizers import check_packages
from groupwise.learner.protocol import ClosingLearner, GivesEntropies, check_opened
from groupwise.learner.weight_check import WeightCheck, choose_tolerance
from groupwise.models.causal_lm import choose_device, read_free_memory
from groupwise.models.outline import plan_model
from groupwise.parts.part import name_of
from groupwise.parts.requirements import check_methods
from groupwise.rollout.environment_runner import Host, open_host
from groupwise.rollout.live_judge import LiveJudge
from groupwise.rollout.prompts import Prompter
from groupwise.rollout.scorers import check_learner
from groupwise.rollout.tasks import LiveCurriculum, MixedTurns
from groupwise.store.journal import Journal
from groupwise.store.lock import RunLock
from groupwise.store.run_folder import RunPaths
from groupwise.system.errors import ConfigError
from groupwise.system.files import parse_toml, read_text_file
from groupwise.system.processes import choose_threads, read_started_rank
from groupwise.system.text import describe_value
from groupwise.training.config.checks import (
    check_algorithm,
    check_engine_gives,
    check_evaluation,
    check_journal,
    check_model,
    check_task_sets,
    check_tasks,
    check_words,
    needs_measured_entropies,
)
from groupwise.training.config.run_config import RunConfig, is_ours
from groupwise.training.config.run_file import decode_run, load_run
from groupwise.training.needed_memory import check_memory, count_shares
from groupwise.training.part_states import PartStates
from groupwise.training.run import Run
from groupwise.training.trackers import check_trackers

Settings = RunConfig | Mapping[str, Any] | Path | str
"""A run's settings: decoded, as content of a run file, or as path of the file or of a run folder."""

RUNS = Path("runs")
"""The parent of run folders, by default."""
WEIGHT_CHECK_TOKENS = 64
"""Largest prompt of the weight check: enough tokens to use every weight."""
KEPT_WEIGHT_CHECK_TOKENS = 288
"""The same for servers that cache prefixes: two blocks of 128 tokens, vLLM's largest default."""


def open_run(
    config: Settings,
    folder: Path | str | None = None,
    *,
    model_and_tokenizer: tuple[Any, Any] | None = None,
    read_only: bool = False,
    learns: bool = True,
) -> Run:
    """Open everything that a run needs; settings are checked before a model loads.

    The folder is locked until the run is closed, or `train` returns. With `read_only`, it is not locked.

    Args:
        config: a `RunConfig`, the content of a run file as a dict, or the path of a run file.
        folder: the run folder; None = a new folder, `runs/1` or the next free number.
        model_and_tokenizer: used instead of those in the settings.
        read_only: whether nothing is written into the folder.
        learns: whether weights will be updated; otherwise the run needs less memory.
    """
    config = read_settings(config)
    if learns and not read_only:
        check_trackers(config.trackers)
    if folder is None:
        folder = next(RUNS / str(number) for number in count(1) if not (RUNS / str(number)).exists())
    paths = RunPaths(Path(folder))
    config, lock = settle_threads(config, paths.folder), RunLock(paths.folder)
    if not read_only:
        lock.acquire()
    # If a later step fails, everything that was opened is closed again.
    with lock.release_on_failure(), ExitStack() as opened:
        loss, device = check_algorithm(config), choose_device(config.device)
        check_engine_gives(config, device=device.type)
        check_evaluation(config)
        check_model(config)
        if model_and_tokenizer is None:
            check_words(config)
        check_packages(config.training.learner)
        if config.threads:
            torch.set_num_threads(config.threads)
        check_journal(paths.folder)
        host = open_run_host(config)
        opened.callback(host.shutdown)
        judge, is_asked = None, any("judge" in part.needs for part in config.algorithm.scorers or ())
        if config.algorithm.judge is not None and is_asked:
            judge = LiveJudge(config.algorithm.judge, paths.judge_record, may_write=not read_only)
            if not read_only:
                judge.check()
        task_sets = check_tasks(config, host)
        tasks = task_sets["train"]
        part_states = PartStates.start(config, seed=config.seed, tasks=tasks)
        check_task_sets(config)
        learns = learns and not read_only
        model, tokenizer = model_and_tokenizer or open_model(config, device, learns=learns)
        is_sharded = isinstance(config.training.learner, ShardedLearnerConfig)
        if not is_sharded:  # a sharded model need not fit on one device
            model = model.to(device)
        engine = open_run_engine(config, model, tokenizer, device=device, folder=None if read_only else paths.servers)
        if isinstance(engine, ClosingEngine):
            opened.callback(engine.close)
        part, extras = config.training.learner, dict[str, Any]()
        if is_sharded:
            extras["device"] = device
        if learns and config.algorithm.critic is not None:
            extras["critic"] = config.algorithm.critic
        learner = part.open(model, loss, temperature=config.rollout.temperature, **extras)
        if isinstance(learner, ClosingLearner):
            opened.callback(learner.close)
        check_opened(learner, f"training.learner ({name_of(part)})")
        check_learner(config.algorithm, learner)
        measures_entropies = needs_measured_entropies(config)
        if measures_entropies and not isinstance(learner, GivesEntropies):
            raise ConfigError(
                f"training.learner: a part of the algorithm reads entropies, which neither the engine "
                f"{name_of(config.engine)} nor {type(learner).__name__} gives; add entropies() to the learner, or use "
                "another engine"
            )
        transfer = config.training.weight_sync.open(None if read_only else paths.weights)
        check_methods(transfer, "weight_sync", f"training.weight_sync ({name_of(config.training.weight_sync)})")
        prompter = open_prompter(config, tokenizer)
        run = Run(
            config=config,
            folder=paths.folder,
            lock=lock,
            tokenizer=tokenizer,
            learner=learner,
            engine=engine,
            weight_sync=transfer,
            prompter=prompter,
            host=host,
            journal=Journal(paths.journal, read_only=read_only),
            task_sets={split: task_set_hash(chosen) for split, chosen in task_sets.items()},
            weight_check=_make_weight_check(config, prompter, engine, model),
            tasks=tasks,
            curriculum=start_curriculum(config, tasks),
            part_states=part_states,
            judge=judge,
            measures_entropies=measures_entropies,
        )
        opened.pop_all()
        return run


def read_settings(config: Settings) -> RunConfig:
    if isinstance(config, RunConfig):
        return config
    if isinstance(config, Mapping):
        return decode_run(config)
    if isinstance(config, str | Path):
        return load_run(config)
    raise ConfigError(
        f"the settings of a run are {describe_value(config)}; give the path of a run file, a RunConfig, or a dict such "
        "as `{'algorithm': {'method': NAME}, 'env': {'kind': 'household'}, 'model': {'kind': 'tiny'}}`"
    )


def open_model(config: RunConfig, device: torch.device, *, learns: bool) -> tuple[Any, Any]:
    """Open the run's model and its tokenizer, after checking that it fits on the device."""
    words = config.words()
    plan = plan_model(config.model, words=words)
    if plan is not None:
        shares = count_shares(config) or read_started_rank().world
        check_memory(config, plan, available=read_free_memory(device), shares=shares, learns=learns)
    return config.model.open(words=words, seed=seed_of(config.seed, "model"))


def open_prompter(config: RunConfig, tokenizer: Any) -> Prompter:
    rollout = config.rollout
    if config.agent is not None:
        return AgentPrompter(
            tokenizer, earlier_replies=config.agent.earlier_replies, max_tokens=rollout.max_prompt_tokens
        )

    def instruct(task: Task) -> str:
        return ask_instruction(find_environment(config.env, task))

    return Prompter(
        tokenizer,
        template=rollout.template,
        history=rollout.history,
        instruction=ask_instruction(config.env),
        system=rollout.system,
        instruct=instruct if isinstance(config.env, Mixture) else None,
        max_tokens=rollout.max_prompt_tokens,
        over_limit=rollout.over_limit,
    )


def _make_weight_check(config: RunConfig, prompter: Prompter, engine: Engine, model: PreTrainedModel) -> WeightCheck:
    """The weight check of a run, with the beginning of its own prompts.

    Engines with KV-cache slots or shared weights also decode, because their scores come from other code or cannot
    differ. Servers cache prefixes per block, so the prompt is repeated to fill blocks: a stale cache is then found.
    """
    opening = prompter.encode_opening("").ids[:WEIGHT_CHECK_TOKENS] or (prompter.frame.end_id,)
    response = (*opening[-4:], prompter.frame.end_id)
    if isinstance(engine, ReplicatedEngine) and isinstance(engine, SubmittingEngine):
        num = min(KEPT_WEIGHT_CHECK_TOKENS, (engine.context or KEPT_WEIGHT_CHECK_TOKENS) - len(response))
        opening = (opening * (num // len(opening) + 1))[:num]
    tolerance = choose_tolerance(config.engine.precision, model)
    decodes = isinstance(engine, StaticCacheEngine) or getattr(config.engine, "share_weights", False)
    return WeightCheck(opening, response, tolerance=tolerance, decodes=decodes)


def start_curriculum(config: RunConfig, tasks: Sequence[Task]) -> LiveCurriculum:
    env, seed = config.env, seed_of(config.seed, "curriculum")
    if not isinstance(env, Mixture):
        return _start_curriculum(config, tasks, seed)
    curricula = {
        name: _start_curriculum(config, [task for task in tasks if env.name_of(task) == name], seed_of(seed, name))
        for name in env.environments
    }
    return MixedTurns(curricula, weights=env.weights, name_of=env.name_of)


def _start_curriculum(config: RunConfig, tasks: Sequence[Task], seed: int) -> LiveCurriculum:
    part = config.training.curriculum
    curriculum = part.start(tasks, seed)
    check_methods(curriculum, "curriculum", f"training.curriculum ({name_of(part)})")
    return curriculum


def open_run_engine(
    config: RunConfig,
    model: PreTrainedModel,
    tokenizer: Any,
    *,
    device: torch.device | None = None,
    folder: Path | None = None,
) -> Engine:
    """Open the run's engine for a loaded model, and check that it gives what its part declares.

    `device` is the model's future device (None = its present one); `folder` is for files of the engine.
    """
    source = ModelSource(
        model=model,
        tokenizer=tokenizer,
        path=getattr(config.model, "path", None),
        folder=folder,
        device=device or next(model.parameters()).device,
    )
    engine: Engine = config.engine.open(source)
    try:
        check_methods(engine, "engine", f"engine ({name_of(config.engine)})")
        for gift in sorted(config.engine.gives - engine.gives):
            raise ConfigError(
                f"engine: {name_of(config.engine)} declares {gift!r}, but its engine does not give it; remove it from "
                "the part's `gives`"
            )
        limits, evaluation = {"rollout": config.rollout.max_tokens}, config.evaluation
        limits |= {evaluation.place_of(name): each.max_tokens or 0 for name, each in evaluation.by_name().items()}
        place, max_tokens = max(limits.items(), key=itemgetter(1))
        if engine.context is not None and engine.context <= max_tokens:
            raise ConfigError(
                f"{place}.max_tokens: {max_tokens} response tokens leave no room for a prompt in the engine's context "
                f"of {engine.context}; lower it, or use an engine with a longer context"
            )
    except BaseException:
        if isinstance(engine, ClosingEngine):
            engine.close()
        raise
    return engine


def open_run_host(config: RunConfig) -> Host:
    """Open the environment runner.

    Outside environments list their tasks and words there first: if they exit, only a worker ends. Agents have a runner
    of their own.
    """
    if config.agent is not None:
        return config.agent.open_runner()
    splits = dict.fromkeys(["train", *(settings.split for settings in config.evaluation.by_name().values())])
    rehearsed = () if is_ours(config.env) else tuple(splits)
    return open_host(config.env, workers=config.num_workers, timeout=config.rollout.env_timeout, rehearsed=rehearsed)


def settle_threads(config: RunConfig, folder: Path) -> RunConfig:
    """Choose a run's number of threads: the one that it began with, or the number of free cores.

    The number of threads changes the order of sums, and so the last digits of a run. All ranks choose the same number.
    """
    if not config.shares_cores:
        return config
    try:
        recorded = parse_toml(read_text_file(RunPaths(folder).config)).get("threads")
    except (OSError, ValueError):  # no run, or unreadable settings, which are reported elsewhere
        recorded = None
    if isinstance(recorded, int) and recorded > 0:
        threads = recorded
    else:
        started = read_started_rank()  # all ranks may be on this machine
        ranks = started.local_world if "LOCAL_WORLD_SIZE" in os.environ else started.world
        threads = choose_threads(config.threads, ranks=ranks)
    return config.model_copy(update={"threads": threads, "shares_cores": False})


def is_follower(config: RunConfig) -> bool:
    """Whether this process is a rank above 0 of a sharded run that trains; checks the number of processes."""
    from groupwise.learner.sharded import check_gpus

    started, part = read_started_rank(), config.training.learner
    if started.world > 1 and not isinstance(part, ShardedLearnerConfig):
        raise ConfigError(
            f"{started.world} processes were started, but the learner {name_of(part)} uses one; set "
            'training.learner.kind = "sharded", or start one process'
        )
    if isinstance(part, ShardedLearnerConfig) and part.ranks not in (None, started.world):
        raise ConfigError(
            f"training.learner.ranks is {part.ranks}, but {started.world} "
            f"{'process was' if started.world == 1 else 'processes were'} started; start the run with torchrun "
            f"--nproc-per-node {part.ranks} -m groupwise train, or change the setting"
        )
    if started.world > 1 and ":" in config.device:
        raise ConfigError(
            f"device: {config.device!r} would put every process on one GPU; set cuda, and each uses its own"
        )
    if started.world > 1 and (config.device == "cuda" or (config.device == "auto" and torch.cuda.is_available())):
        check_gpus(torch.device("cuda"))  # before rank 0 opens the model, which takes minutes
    return started.rank > 0


def follow_run(config: RunConfig) -> None:
    """Hold this rank's shard of the model, and follow rank 0 until the run ends."""
    from groupwise.learner.sharded import check_gpus, follow, open_rank

    part = config.training.learner
    assert isinstance(part, ShardedLearnerConfig), "checked by is_follower"
    if config.device in ("auto", "cuda") and torch.cuda.is_available():
        check_gpus(torch.device("cuda"))
        torch.cuda.set_device(read_started_rank().local_rank)  # before anything is put on the first GPU
    loss, device = check_algorithm(config), choose_device(config.device)
    if config.threads:
        torch.set_num_threads(config.threads)
    critic, temperature = config.algorithm.critic, config.rollout.temperature
    follow(open_rank(None, loss, part, temperature=temperature, device=device, critic=critic))
