"""Opening a run: its environments, model, engine, learner, journal and parts; what cannot work is refused first."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from groupwise.data.records import Task
from groupwise.data.seeds import seed_of
from groupwise.engines.engine import ClosingEngine, Engine, ReplicatedEngine, SubmittingEngine
from groupwise.engines.model_source import ModelSource
from groupwise.engines.static_cache.engine import StaticCacheEngine
from groupwise.envs.mixture import Mixture, find_environment
from groupwise.envs.part_queries import ask_instruction
from groupwise.learner.config import ShardedLearnerConfig
from groupwise.learner.protocol import ClosingLearner, Learner, check_opened
from groupwise.learner.trainable import check_packages
from groupwise.learner.weight_check import Canary, choose_tolerance
from groupwise.learner.weight_sync import WeightTransfer
from groupwise.models.causal_lm import choose_device, read_free_memory
from groupwise.models.outline import plan_model
from groupwise.parts.members import check_methods
from groupwise.parts.part import name_of
from groupwise.parts.slots import Loss
from groupwise.rollout.environment_runner import Host, open_host
from groupwise.rollout.judges.live_judge import LiveJudge
from groupwise.rollout.measures.tools import check_learner
from groupwise.rollout.prompts import Prompter
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
    check_journal,
    check_model,
    check_panels,
    check_tasks,
    check_words,
)
from groupwise.training.config.engine_needs import check_engine_gives
from groupwise.training.config.run_config import RunConfig, is_ours
from groupwise.training.needed_memory import check_memory, count_shares
from groupwise.training.part_states import PartStates
from groupwise.training.run import Run

CANARY_TOKENS = 64
"""Most tokens of the prompt that engine and learner must score alike: enough to run every weight."""
KEPT_CANARY_TOKENS = 288
"""As many where servers keep prefixes: two blocks of 128 tokens, the largest that vLLM takes by itself."""


def open_run(
    config: RunConfig,
    folder: Path | str,
    *,
    model_and_tokenizer: tuple[Any, Any] | None = None,
    read_only: bool = False,
    learns: bool = True,
) -> Run:
    """Open everything a run needs; what cannot work is refused before a model loads.

    The folder is locked until `train` returns, or the run is gone. With `read_only` it is not: somebody else may write
    there meanwhile, this run does not.

    Args:
        config: the run, as `load_run` reads it from a file, or made of its parts.
        folder: where the run is, or will be.
        model_and_tokenizer: to take the place of those that `config.model` would open.
        read_only: whether nothing is written into the folder.
        learns: whether weights will be updated; a run that only plays needs less memory.
    """
    if not isinstance(config, RunConfig):
        raise ConfigError(
            f"open_run was given {describe_value(config)} for the run's settings; read them first: "
            "open_run(load_run('run.toml'), 'runs/first')"
        )
    config, lock = settle_threads(config, Path(folder)), RunLock(Path(folder))
    if not read_only:
        lock.acquire()
    with lock.release_on_failure():
        return _open(config, Path(folder), lock, model_and_tokenizer, learns and not read_only)


def _open(
    config: RunConfig, folder: Path, lock: RunLock, model_and_tokenizer: tuple[Any, Any] | None, learns: bool
) -> Run:
    loss, device = check_algorithm(config), choose_device(config.device)
    check_engine_gives(config, device=device.type)
    check_model(config)
    if model_and_tokenizer is None:
        check_words(config)
    check_packages(config.training.learner)
    if config.threads:
        torch.set_num_threads(config.threads)
    check_journal(folder)

    def get_model() -> tuple[Any, Any]:
        return model_and_tokenizer or open_model(config, device, learns=learns)

    with ExitStack() as opened:  # ended again where something after it cannot be opened
        host = open_run_host(config)
        opened.callback(host.shutdown)
        run = _open_with_host(host, opened, config, folder, lock, get_model, loss, device)
        opened.pop_all()
        return run


def _open_with_host(
    host: Host,
    opened: ExitStack,
    config: RunConfig,
    folder: Path,
    lock: RunLock,
    get_model: Callable[[], tuple[Any, Any]],
    loss: Loss,
    device: torch.device,
) -> Run:
    """Open the rest of a run, whose environments have their host."""
    paths = RunPaths(folder)
    judge, tasks = _open_judge(config, paths, may_ask=lock.is_held), check_tasks(config, host)
    part_states = PartStates.start(config, seed=config.seed, tasks=tasks)
    panels = check_panels(config)
    model, tokenizer = get_model()
    model = _place_model(config, model, device)
    engine = open_run_engine(config, model, tokenizer, device=device, folder=paths.servers if lock.is_held else None)
    if isinstance(engine, ClosingEngine):
        opened.callback(engine.close)
    learner = _open_learner(config, model, loss, device, opened)
    prompter = open_prompter(config, tokenizer)
    journal = Journal(paths.journal, read_only=not lock.is_held)
    return Run(
        config=config,
        folder=folder,
        lock=lock,
        tokenizer=tokenizer,
        learner=learner,
        engine=engine,
        weight_transfer=_open_transfer(config, paths.weights if lock.is_held else None),
        prompter=prompter,
        host=host,
        journal=journal,
        panels=panels,
        canary=_make_canary(config, prompter, engine, model),
        tasks=tasks,
        curriculum=start_curriculum(config, tasks),
        part_states=part_states,
        judge=judge,
    )


def open_model(config: RunConfig, device: torch.device, *, learns: bool) -> tuple[Any, Any]:
    """Open the run's model and its tokenizer; one that does not fit on the device is refused before it is there."""
    words = config.words()
    plan = plan_model(config.model, words=words)
    if plan is not None:
        shares = count_shares(config) or read_started_rank().world
        check_memory(config, plan, available=read_free_memory(device), shares=shares, learns=learns)
    return config.model.open(words=words, seed=seed_of(config.seed, "model"))


def _place_model(config: RunConfig, model: PreTrainedModel, device: torch.device) -> PreTrainedModel:
    """Put the model on its device; not one that a sharded learner will divide, which need not fit there."""
    if isinstance(config.training.learner, ShardedLearnerConfig):
        return model
    placed: PreTrainedModel = model.to(device)  # type: ignore[arg-type]
    return placed


def open_prompter(config: RunConfig, tokenizer: Any) -> Prompter:
    """What makes a run's prompts, with the tokenizer of its model."""
    rollout = config.rollout

    def instruct(task: Task) -> str:
        return ask_instruction(find_environment(config.env, task))

    return Prompter(
        tokenizer,
        template=rollout.template,
        memory=rollout.memory,
        instruction=ask_instruction(config.env),
        system=rollout.system,
        instruct=instruct if isinstance(config.env, Mixture) else None,
    )


def _open_judge(config: RunConfig, paths: RunPaths, *, may_ask: bool) -> LiveJudge | None:
    """Open the judge of the run's measures; one that cannot work is refused here, before a model loads."""
    if config.algorithm.judge is None or not any("judge" in part.needs for part in config.algorithm.measures or ()):
        return None
    judge = LiveJudge(config.algorithm.judge, paths.judge_record, may_write=may_ask)
    if may_ask:
        judge.check()
    return judge


def _make_canary(config: RunConfig, prompter: Prompter, engine: Engine, model: PreTrainedModel) -> Canary:
    """The canary of a run: the beginning of its own prompts; some engines decode for it too.

    Those are engines in lanes, whose scores are another code's, and those that share the weights, whose scores cannot
    differ.

    A server that keeps prefixes of prompts keeps them by the block. The prompt is then repeated until it has blocks:
    only what was kept can have been left behind by old weights.
    """
    opening = prompter.encode_opening("")[:CANARY_TOKENS]
    response = (*opening[-4:], prompter.frame.end_id)
    if isinstance(engine, ReplicatedEngine) and isinstance(engine, SubmittingEngine):
        num = min(KEPT_CANARY_TOKENS, (engine.context or KEPT_CANARY_TOKENS) - len(response))
        opening = (opening * (num // len(opening) + 1))[:num]
    tolerance = choose_tolerance(config.engine.precision, model)
    decodes = isinstance(engine, StaticCacheEngine) or getattr(config.engine, "share_weights", False)
    return Canary(opening, response, tolerance=tolerance, decodes=decodes)


def start_curriculum(config: RunConfig, tasks: Sequence[Task]) -> LiveCurriculum:
    """Start the run's curriculum over its training tasks."""
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
    """Open the engine that the run file names, for a loaded model; refused where it gives less than its part said.

    Args:
        config: the run.
        model: loaded.
        tokenizer: the model's.
        device: what the model will compute on; None = where it is.
        folder: where the engine may write files of its own; None = nowhere in the run's folder.
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
        _check_opened_engine(config, engine)
    except BaseException:
        if isinstance(engine, ClosingEngine):
            engine.close()
        raise
    return engine


def _check_opened_engine(config: RunConfig, engine: Engine) -> None:
    """Refuse an engine that gives less than its part said, or has no room for a prompt."""
    for gift in sorted(config.engine.gives - engine.gives):
        raise ConfigError(
            f"engine: {name_of(config.engine)} says that it gives {gift!r}, but its engine does not; take it out of "
            "the part's `gives`"
        )
    max_tokens = config.rollout.max_tokens
    if engine.context is not None and engine.context <= max_tokens:
        raise ConfigError(
            f"rollout.max_tokens: {max_tokens} tokens of a response leave no room for a prompt in the engine's context "
            f"of {engine.context}; lower it, or take an engine with a longer context"
        )


def _open_learner(
    config: RunConfig, model: PreTrainedModel, loss: Loss, device: torch.device, opened: ExitStack
) -> Learner:
    """Open the learner that the run file names, on a model that is its own from here on."""
    part = config.training.learner
    place = {"device": device} if isinstance(part, ShardedLearnerConfig) else {}
    learner = part.open(model, loss, temperature=config.rollout.temperature, **place)
    if isinstance(learner, ClosingLearner):
        opened.callback(learner.close)
    check_opened(learner, f"training.learner ({name_of(part)})")
    check_learner(config.algorithm, learner)
    return learner


def _open_transfer(config: RunConfig, folder: Path | None) -> WeightTransfer:
    part = config.training.weight_transfer
    transfer = part.open(folder)
    check_methods(transfer, "weight_transfer", f"training.weight_transfer ({name_of(part)})")
    return transfer


def open_run_host(config: RunConfig) -> Host:
    """Open the host that the environments run in.

    Environments from elsewhere are asked for their tasks and words there first, where an exit costs a worker and not
    the run.
    """
    splits = dict.fromkeys(["train", config.evaluation.split] if config.evaluation.tasks else ["train"])
    rehearsed = () if is_ours(config.env) else tuple(splits)
    return open_host(config.env, workers=config.num_workers, timeout=config.rollout.env_timeout, rehearsed=rehearsed)


# How many threads a run computes with, where it leaves that to the machine: settled once, and kept with the run.
#
# Sums come out in another order with another number of threads, and so do the last digits of a run. A run that is
# resumed takes the number that it began with, whatever the machine does by then. Ranks of one run settle on the same
# number.


def settle_threads(config: RunConfig, folder: Path) -> RunConfig:
    """Settle how many threads a run computes with: as many as it began with, or as the machine has to spare now."""
    if not config.shares_cores:
        return config
    threads = _read_recorded(folder) or choose_threads(config.threads, ranks=_count_ranks_here())
    return config.model_copy(update={"threads": threads, "shares_cores": False})


def _count_ranks_here() -> int:
    """Processes of this run on this machine; all of them where nothing says how many are on another one."""
    started = read_started_rank()
    return started.local_world if "LOCAL_WORLD_SIZE" in os.environ else started.world


def _read_recorded(folder: Path) -> int | None:
    """The number that the run in a folder began with; None where there is none."""
    try:
        recorded = parse_toml(read_text_file(RunPaths(folder).config)).get("threads")
    except (OSError, ValueError):  # no run, or one whose settings cannot be read, which is told elsewhere
        return None
    return recorded if isinstance(recorded, int) and recorded > 0 else None
