"""Sending an exported folder to a hub, under an account that the hub's own login or HF_TOKEN names."""

from __future__ import annotations

from pathlib import Path

from groupwise.core.errors import FileError
from groupwise.core.text.safe_text import quote_line
from groupwise.core.text.secrets import redact


def push_folder(folder: Path, repository: str, *, private: bool = True) -> str:
    """Upload a folder as a model of a hub, which is made where it is not there; its address.

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
            "or set HF_TOKEN, then push it again"
        ) from None
    return str(address)
