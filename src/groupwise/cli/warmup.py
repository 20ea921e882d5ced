"""`groupwise warmup`: a warm start (SFT) as a model folder that runs can start from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

from rich.console import Console

from groupwise.cli.arguments import Set, Unset, argument, load_run_file, need_trainer, option
from groupwise.cli.live import PlainLines, describe_evaluation, describe_expert_faults
from groupwise.cli.screen import output, print_line
from groupwise.store.lock import RunLock
from groupwise.system.errors import ConfigError, FileError

if TYPE_CHECKING:
    from groupwise.training.run import Run


def warmup(
    file: Annotated[Path, argument("RUN.toml", "Run file. Its section warm_start is used.")],
    out: Annotated[Path, option("FOLDER", "New folder for the model, in the Hugging Face layout.")],
    source: Annotated[
        Path | None, option("ROLLOUTS", "Learn from these recorded rollouts; default: from the expert.", "--from")
    ] = None,
    min_return: Annotated[
        float | None, option("NUMBER", "Smallest return of a recorded rollout; default: more than 0.")
    ] = None,
    set_: Set = None,
    unset: Unset = None,
) -> None:
    """Fine-tune a model on expert or recorded rollouts (SFT). The result is a model folder."""
    need_trainer()
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"{out} already exists; choose another folder with --out")
    if min_return is not None and source is None:
        raise ConfigError("--min-return needs recorded rollouts; give them with --from")
    config = load_run_file(file, set_, unset)
    from groupwise.training.evaluation.evaluate import evaluate_run
    from groupwise.training.open_run import open_run

    console = output()
    lines, lock = PlainLines(console), RunLock(out.with_name(f".{out.name}.tmp"), is_draft=True)
    lock.acquire()  # only one process may write the model there
    with (
        lock.release_on_failure(),
        lines.heartbeat,
        TemporaryDirectory(prefix="groupwise-") as scratch,
        open_run(config.model_copy(update={"trackers": ()}), Path(scratch)) as run,
    ):
        losses = _teach(run, source, min_return, console, lines)
        console.print(f"loss {losses[0]:.3f} to {losses[-1]:.3f} over {len(losses)} epochs")
        if config.evaluation.tasks:
            lines.on_stage("evaluate", 0)
            print_line(describe_evaluation(evaluate_run(run, write=False)), to=console)
        _save(run, out, lock)
    console.print(f'\nTo start a run from it:\n\n[model]\nkind = "pretrained"\npath = "{out}"', markup=False)


def _teach(run: Run, source: Path | None, min_return: float | None, console: Console, lines: PlainLines) -> list[float]:
    from groupwise.store.formats import open_rollouts
    from groupwise.training.config.run_config import WarmStartConfig
    from groupwise.training.warm_start import imitate_samples, make_expert_samples, make_recorded_samples

    def warn(causes: Mapping[str, int], rollouts: int) -> None:
        for line in describe_expert_faults(causes, rollouts):
            print_line(line, to=console)

    settings = run.config.warm_start or WarmStartConfig()
    lines.on_stage("reading rollouts" if source else "expert rollouts", 0)
    if source is None:
        samples = make_expert_samples(run, run.tasks[: settings.tasks], settings, report_faults=warn)
    else:
        samples = make_recorded_samples(run, open_rollouts(source).rows(), min_return=min_return, report_faults=warn)
    rollouts = len({sample.trajectory for sample in samples})
    console.print(f"{len(samples)} steps of {rollouts} {'recorded' if source else 'expert'} rollouts")
    lines.on_stage("warm start", 0)
    return imitate_samples(run, samples, settings, report_epoch=lines.on_warm_start_epoch)


def _save(run: Run, out: Path, lock: RunLock) -> None:
    """Write model and tokenizer beside the folder, then move them there. A LoRA adapter is merged into its model."""
    from safetensors import SafetensorError

    from groupwise.training.checkpoints import save_tokenizer

    try:
        run.learner.export(lock.folder)
        save_tokenizer(run.tokenizer, lock.folder)
        if out.is_dir():
            out.rmdir()
        lock.release()
        lock.folder.rename(out)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or error
        raise FileError(f"{out} could not be written ({reason}); free some space, or choose another folder") from None
