"""Export a checkpoint's model and tokenizer, with its adapter merged or not, to a folder or the hub."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from groupwise import __version__
from groupwise.models.folder import (
    ADAPTER_CONFIG,
    BASE,
    find_adapter,
    load_adapter,
    load_model,
    load_tokenizer,
    save_model,
)
from groupwise.store.checkpoint_files import find_latest_checkpoint, read_state
from groupwise.store.run_folder import STATE, RunPaths
from groupwise.system.errors import ConfigError, FileError
from groupwise.system.json_text import to_json
from groupwise.system.secrets import redact
from groupwise.system.text import quote_line
from groupwise.training.alarms import find_best_number
from groupwise.training.config.run_config import EvaluationConfig
from groupwise.training.evaluation.summary import Evaluation, group_rows
from groupwise.training.run_reader import RunFolder

OWN_FILES = (STATE, "optimizer.safetensors")
"""Files of a checkpoint that only a resumed run needs."""


@dataclass(frozen=True, kw_only=True)
class Exported:
    """An exported folder."""

    folder: Path
    update: int
    is_adapter: bool


def export_run(
    run: Path | str,
    out: Path | str | None = None,
    *,
    update: int | None = None,
    best: bool = False,
    merge: bool = False,
) -> Exported:
    """Write a run's policy as a folder that transformers and vLLM load.

    Args:
        run: the run's folder.
        out: a new folder; None = `NAME-UPDATE` beside the run.
        update: of the checkpoint; None = the latest.
        best: whether to take the checkpoint with the highest held-out success.
        merge: whether to merge an adapter into its base model.
    """
    run, out = Path(run), None if out is None else Path(out)
    with RunFolder(run) as folder:
        checkpoint = choose_checkpoint(folder, update=update, best=best)
        number = int(checkpoint.name)
        read_state(checkpoint)  # checks every file
        is_adapter = (checkpoint / ADAPTER_CONFIG).is_file()
        if merge and not is_adapter:
            raise ConfigError(f"{checkpoint} holds a whole model, so there is no adapter to merge; leave --merge out")
        target = out or run.with_name(f"{run.resolve().name}-{number:04d}")
        if target.exists():
            raise FileError(f"{target} exists already; give another folder with --out, or move it away")
        draft = target.with_name(f".{target.name}.tmp")
        shutil.rmtree(draft, ignore_errors=True)
        try:
            dtype, start = str(folder.setting("model.dtype") or "auto"), folder.setting("model.path")
            base = _write_weights(checkpoint, draft, merge=merge, dtype=dtype) or _name_model(str(start or ""))
            card = make_card(folder, update=number, base=base, is_adapter=is_adapter and not merge)
            (draft / CARD).write_text(card, encoding="utf-8")
            (draft / SETTINGS).write_text(folder.config_text, encoding="utf-8")
            draft.rename(target)
        except OSError as error:
            raise FileError(
                f"{target} could not be written ({error.strerror or error}); free some space, or give another folder "
                "with --out"
            ) from None
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        return Exported(folder=target, update=number, is_adapter=is_adapter and not merge)


def is_exported(folder: Path) -> bool:
    return (folder / SETTINGS).is_file() and not RunPaths(folder).holds_run()


def push_folder(folder: Path, repository: str, *, private: bool = True) -> str:
    """Upload a folder of `export_run` to the hub as `account/name`, and return its address.

    The account comes from the hub's own login, or from HF_TOKEN. `private` matters only for a new repository.
    """
    from huggingface_hub import HfApi  # comes with transformers

    api = HfApi()
    try:
        address = api.create_repo(repository, private=private, exist_ok=True, repo_type="model")
        api.upload_folder(repo_id=repository, folder_path=str(folder), commit_message=f"Export of {folder.name}")
    except Exception as error:  # the hub's library and the network have no class in common
        reason = quote_line(redact(str(error).strip()), limit=300) or type(error).__name__
        raise FileError(
            f"{repository} could not be pushed to the hub ({reason}); {folder} is complete. Log in with `hf auth "
            f"login`, or set HF_TOKEN, then run `groupwise export {folder} --push {repository}`"
        ) from None
    return str(address)


def _write_weights(checkpoint: Path, draft: Path, *, merge: bool, dtype: str) -> str | None:
    """Write weights and tokenizer, and return the name of an adapter's base model.

    An adapter is merged in the precision of the training, which keeps the policy the same.
    """
    adapter = find_adapter(str(checkpoint))
    if adapter is None or not merge:
        shutil.copytree(checkpoint, draft, ignore=shutil.ignore_patterns(*OWN_FILES))
        for file in draft.iterdir():
            file.chmod(0o644)  # a server may run as another user
        if adapter is not None:
            # The base as it was found: a relative path would not fit the new folder.
            content = json.loads((draft / ADAPTER_CONFIG).read_text(encoding="utf-8"))
            (draft / ADAPTER_CONFIG).write_text(to_json({**content, BASE: adapter.base}), encoding="utf-8")
        return _name_model(adapter.base) if adapter is not None else None
    draft.mkdir(parents=True)
    merged = load_adapter(adapter, load_model(adapter.base, dtype=dtype)).merge_and_unload()
    save_model(merged, draft)
    has_tokenizer = (checkpoint / "tokenizer_config.json").is_file()
    load_tokenizer(str(checkpoint) if has_tokenizer else adapter.base).save_pretrained(draft)
    return _name_model(adapter.base)


def _name_model(path: str) -> str | None:
    """A model's name on the hub; None for a local folder."""
    is_folder = Path(path).expanduser().is_dir() or Path(path).is_absolute()
    return None if is_folder or not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", path) else path


def choose_checkpoint(run: RunFolder, *, update: int | None = None, best: bool = False) -> Path:
    """The folder of a checkpoint: the latest, that of an update, or the best on held-out tasks."""
    if best and update is not None:
        raise ConfigError("an update and --best both name a checkpoint; give one of them")
    paths = RunPaths(run.path)
    numbers = paths.checkpoint_numbers()
    if best:
        settings = EvaluationConfig(**(run.setting("evaluation") or {}))
        update = find_best_number(run.journal.evaluations(), settings, set(numbers))
        if update is None:
            raise ConfigError(
                f"{run.path}: no checkpoint was evaluated, so none is the best; run `groupwise evaluate` on one, "
                "set evaluation.every to a multiple of training.checkpoint_every, or name an update"
            )
    elif update is None:
        latest = find_latest_checkpoint(paths.checkpoints)
        if latest is None:
            raise ConfigError(f"{run.path}: there is no checkpoint yet; continue the run until it has written one")
        return latest
    elif update not in numbers:
        known = ", ".join(map(str, numbers)) or "none yet"
        raise ConfigError(f"{run.path}: there is no checkpoint of update {update}; there are: {known}")
    return paths.checkpoint(update)


CARD = "README.md"
SETTINGS = "groupwise_run.toml"
"""All settings of the run, beside the weights."""


def make_card(run: RunFolder, *, update: int, base: str | None, is_adapter: bool) -> str:
    """The model card: the hub's fields, then text."""
    from jinja2 import Environment

    names, environment = run.task_set_names, run.setting("env.kind")
    rows = [row for row in run.journal.evaluations() if not names or row.name in names]
    evaluations = [Evaluation.from_rows(each) for _, each in group_rows(rows, lambda row: [(row.number, row.name)])]
    template = files("groupwise.training").joinpath("model_card.md.j2").read_text(encoding="utf-8")
    return (
        Environment(trim_blocks=True, keep_trailing_newline=True)
        .from_string(template)
        .render(
            name=run.name,
            update=update,
            updates=run.setting("training.updates"),
            version=__version__,
            method=run.describe_method(),
            environment=environment or "unknown",
            seed=run.setting("seed") or 0,
            evaluations=[evaluation for evaluation in evaluations if evaluation.number in (0, update)],
            base=base,
            is_adapter=is_adapter,
            settings=SETTINGS,
        )
    )
