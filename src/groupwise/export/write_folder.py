"""Writing the exported folder: a checkpoint's model and tokenizer, or its adapter merged into its model; to a hub."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from groupwise.core.errors import ConfigError, FileError
from groupwise.core.run_paths import STATE, RunPaths
from groupwise.core.text.safe_text import quote_line
from groupwise.core.text.secrets import redact
from groupwise.export.choose_checkpoint import choose_checkpoint
from groupwise.export.model_card import SETTINGS, write_card
from groupwise.models.folder import ADAPTER_CONFIG, BASE, find_adapter, load_adapter, load_model, load_tokenizer
from groupwise.models.quietly import save_model
from groupwise.reports.run.run_folder import RunFolder
from groupwise.training.checkpoints.state_file import read_state

OWN_FILES = (STATE, "optimiser.safetensors")
"""What of a checkpoint only resuming needs."""


@dataclass(frozen=True, kw_only=True)
class Exported:
    """What was written."""

    folder: Path
    """Where."""
    update: int
    """After which update the policy is."""
    is_adapter: bool
    """Whether it is an adapter alone."""


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
        out: where to; None = `NAME-UPDATE` beside the run. It must not be there yet.
        update: after which update; None = the latest checkpoint.
        best: whether to take the checkpoint with the highest held-out success.
        merge: whether to merge an adapter into the model that it sits on.
    """
    run, out = Path(run), None if out is None else Path(out)
    with RunFolder(run) as folder:
        checkpoint = choose_checkpoint(folder, update=update, best=best)
        number = int(checkpoint.name)
        read_state(checkpoint)  # every file is as it was written
        is_adapter = (checkpoint / ADAPTER_CONFIG).is_file()
        if merge and not is_adapter:
            raise ConfigError(
                f"{checkpoint} holds a whole model, so there is no adapter to merge; leave --merge out, it can be "
                "loaded as it is"
            )
        target = out or run.with_name(f"{run.resolve().name}-{number:04d}")
        if target.exists():
            raise FileError(f"{target} is there already; give another folder with --out, or move it away")
        draft = target.with_name(f".{target.name}.tmp")
        shutil.rmtree(draft, ignore_errors=True)
        try:
            dtype = str(folder.setting("model.dtype") or "auto")
            base = _write_weights(checkpoint, draft, merge=merge, dtype=dtype) or _find_start(folder)
            write_card(draft, folder, update=number, base=base, is_adapter=is_adapter and not merge)
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
    """Whether a folder is one that `export_run` wrote, and no run."""
    return (folder / SETTINGS).is_file() and not RunPaths(folder).holds_run()


def push_folder(folder: Path, repository: str, *, private: bool = True) -> str:
    """Upload a folder as a model of a hub, which is made where it is not there; its address.

    Whose account it is, the hub's own login says, or HF_TOKEN.

    Args:
        folder: as `export_run` wrote it.
        repository: `account/name`.
        private: whether a repository that is made now is seen by its account alone.
    """
    from huggingface_hub import HfApi  # it comes with transformers

    api = HfApi()
    try:
        address = api.create_repo(repository, private=private, exist_ok=True, repo_type="model")
        api.upload_folder(repo_id=repository, folder_path=str(folder), commit_message=f"Export of {folder.name}")
    except Exception as error:  # the hub's library and the network have no class in common
        reason = quote_line(redact(str(error).strip()), limit=300) or type(error).__name__
        raise FileError(
            f"{repository} could not be pushed to the hub ({reason}); {folder} is whole: log in with `hf auth login`, "
            f"or set HF_TOKEN, then `groupwise export {folder} --push {repository}` sends it as it is"
        ) from None
    return str(address)


def _write_weights(checkpoint: Path, draft: Path, *, merge: bool, dtype: str) -> str | None:
    """Write weights and tokenizer; the name of the model that an adapter sits on, or None.

    An adapter is merged in the precision that its model was trained in, so that the policy is the one of the run.
    """
    adapter = find_adapter(str(checkpoint))
    if adapter is None or not merge:
        shutil.copytree(checkpoint, draft, ignore=shutil.ignore_patterns(*OWN_FILES))
        for file in draft.iterdir():
            file.chmod(0o644)  # a server may run as somebody else
        if adapter is not None:
            _name_base(draft / ADAPTER_CONFIG, adapter.base)
        return _name_model(adapter.base) if adapter is not None else None
    draft.mkdir(parents=True)
    merged = load_adapter(adapter, load_model(adapter.base, dtype=dtype)).merge_and_unload()
    save_model(merged, draft)
    has_tokenizer = (checkpoint / "tokenizer_config.json").is_file()
    load_tokenizer(str(checkpoint) if has_tokenizer else adapter.base).save_pretrained(draft)
    return _name_model(adapter.base)


def _name_base(place: Path, base: str) -> None:
    """Let the adapter name its model as it was found: a relative path would lead elsewhere from the new folder."""
    content = json.loads(place.read_text(encoding="utf-8"))
    place.write_text(json.dumps({**content, BASE: base}, indent=2), encoding="utf-8")


def _find_start(run: RunFolder) -> str | None:
    """The name of the model that the run began with, where a hub has it."""
    path = run.setting("model.path")
    return _name_model(str(path)) if path else None


def _name_model(path: str) -> str | None:
    """A model's name on the hub; None for a folder, which is nowhere else."""
    is_folder = Path(path).expanduser().is_dir() or Path(path).is_absolute()
    return None if is_folder or not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", path) else path
