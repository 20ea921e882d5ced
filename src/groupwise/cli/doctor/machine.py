"""What this machine has, read off the operating system without torch."""

from __future__ import annotations

import platform
import shutil
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from groupwise.core.free_cores import count_usable_cores as count_usable_cores
from groupwise.core.free_cores import read_load as read_load
from groupwise.core.free_memory import read_free_memory as read_free_memory

EXTRAS = {
    "torch": "train",
    "transformers": "train",
    "tokenizers": "train",
    "safetensors": "train",
    "peft": "train",
    "pyarrow": "parquet",
    "pandas": "pandas",
    "polars": "polars",
    "gymnasium": "gymnasium",
    "datasets": "datasets",
    "alfworld": "alfworld",
    "textworld": "textworld",
    "textworld-express": "textworld_express",
    "scienceworld": "scienceworld",
    "reasoning-gym": "reasoning",
    "math-verify": "math",
    "bm25s": "search",
    "rapidfuzz": "webshop",
    "bfcl-eval": "bfcl",
    "minigrid": "babyai",
    "gym-sokoban": "sokoban",
    "textarena": "textarena",
    "gem-llm": "gem",
    "websockets": "openenv",
    "vllm": "vllm",
    "bitsandbytes": "qlora",
    "torchao": "lean",
    "ray": "ray",
    "tensorboard": "tensorboard",
    "wandb": "wandb",
    "trackio": "trackio",
    "mlflow": "mlflow",
}
"""Optional packages, and the extra of groupwise that installs each."""
ALONE = {"bfcl-eval", "gem-llm"}
"""Of these the extra installs what is used of their needs, and not themselves: they ask for old versions of much."""


def describe_python() -> str:
    """The interpreter and the system."""
    return f"Python {platform.python_version()}, {platform.system()} {platform.machine()}"


def find_version(package: str) -> str | None:
    """Version of a package; None where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def name_install_command(package: str) -> str:
    """The command that brings an optional package.

    >>> name_install_command("torch"), name_install_command("bfcl-eval")
    ("pip install 'groupwise[train]'", "pip install 'groupwise[bfcl]' && pip install --no-deps bfcl-eval")
    """
    extra = f"pip install 'groupwise[{EXTRAS[package]}]'"
    return f"{extra} && pip install --no-deps {package}" if package in ALONE else extra


def read_free_disk(folder: Path) -> tuple[float, float]:
    """Free bytes and all bytes of the disk that a folder is, or would be, on."""
    there = next(path for path in (folder.resolve(), *folder.resolve().parents) if path.exists())
    usage = shutil.disk_usage(there)
    return float(usage.free), float(usage.total)


def measure_folder(folder: Path) -> float:
    """Bytes of the files in a folder, at any depth; what is removed meanwhile does not count."""
    size = 0.0
    for path in folder.rglob("*"):
        with suppress(OSError):
            size += path.lstat().st_size if path.is_file() and not path.is_symlink() else 0
    return size
