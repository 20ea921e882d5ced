"""A way for weights into vLLM: a safetensors file, named in the call, read by each of vLLM's workers.

This file runs in vLLM's environment and imports nothing of ours. vLLM finds it by an entry point `vllm.general_plugins`
(of a server that we start: in the folder beside it; elsewhere: of groupwise, installed there with --no-deps) and is
told to use it by `--weight-transfer-config '{"backend": "groupwise_file"}'`. Both shapes of vLLM's interface are
served: until release 0.24 the worker prepares and closes an update and gives us its loader, later ones leave that to
the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from safetensors import safe_open
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory

BACKEND = "groupwise_file"
"""The name that a server is started with."""
HELD_WEIGHTS: dict[str, Mapping[str, torch.Tensor]] = {}
"""Weights that whoever shares the process with vLLM puts here for the time of an update."""


@dataclass
class FileInitInfo(WeightTransferInitInfo):  # type: ignore[misc]
    """Nothing has to be agreed on before the first file."""


@dataclass
class FileUpdateInfo(WeightTransferUpdateInfo):  # type: ignore[misc]
    """What `/update_weights` is told."""

    path: str = ""
    """A safetensors file that this machine sees, with weights by the names that the model's folder has for them."""
    held: str = ""
    """In place of a file, where trainer and vLLM are one process: under which name `HELD_WEIGHTS` has them."""


class FileTransferEngine(WeightTransferEngine[FileInitInfo, FileUpdateInfo]):  # type: ignore[misc]
    """Reads weights from a file, through vLLM's own loader, which knows what it has fused."""

    init_info_cls = FileInitInfo
    update_info_cls = FileUpdateInfo

    def init_transfer_engine(self, init_info: FileInitInfo) -> None:
        """Nothing to open."""

    def start_weight_update(self) -> None:
        """Undo what vLLM did to the weights after loading them, layer by layer, so that it can load again."""
        from vllm.model_executor.model_loader.reload import initialize_layerwise_reload

        with torch.device(self.device):
            initialize_layerwise_reload(self.model)

    def receive_weights(
        self,
        update_info: FileUpdateInfo,
        load_weights: Callable[[Iterable[tuple[str, torch.Tensor]]], object] | None = None,
    ) -> None:
        """Read a file into the model; a name that the model does not know is an error of vLLM's loader."""
        load = self.model.load_weights if load_weights is None else load_weights
        load(HELD_WEIGHTS[update_info.held].items() if update_info.held else read_weights(update_info.path))

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """Read a file, and be done when this returns.

        A file that does not fit leaves the model as it can be used: else the next request would end the server.
        """
        try:
            with torch.device(self.device):
                self.receive_weights(self.parse_update_info(update_info))
        except BaseException:
            self.finish_weight_update()
            raise
        if self.device.type != "cpu":  # where there is nothing to wait for, and no accelerator to ask
            torch.accelerator.synchronize()

    def finish_weight_update(self) -> None:
        """Let vLLM do again what it does to weights after loading them."""
        from vllm.model_executor.model_loader.reload import finalize_layerwise_reload

        with torch.device(self.device):
            finalize_layerwise_reload(self.model, self.model_config)
            self._pack_tied_head()

    def _pack_tied_head(self) -> None:
        """Let a head that is tied to the embeddings follow them.

        It shares their memory and is named in no file, so that vLLM does nothing for it after loading; on a CPU it
        computes with a packed copy, which would stay behind.
        """
        head = getattr(self.model, "lm_head", None)
        if head is not None and getattr(self.model_config.hf_config, "tie_word_embeddings", False):
            head.quant_method.process_weights_after_loading(head)

    @staticmethod
    def trainer_send_weights(iterator: Iterator[tuple[str, torch.Tensor]], trainer_args: dict[str, Any]) -> None:
        """Releases until 0.24 ask every engine for this; the trainer writes the file by itself, so nothing calls it."""
        raise NotImplementedError("weights go through a file, which the trainer writes by itself")

    def shutdown(self) -> None:
        """Nothing stays open."""


def read_weights(path: str) -> Iterator[tuple[str, torch.Tensor]]:
    """The weights of a file, one at a time."""
    with safe_open(path, framework="pt", device="cpu") as file:
        for name in file.keys():  # noqa: SIM118 - it is no mapping
            yield name, file.get_tensor(name)


def register() -> None:
    """Make the engine known to vLLM. It is called in every process of vLLM's, and may be called again."""
    if BACKEND not in WeightTransferEngineFactory._registry:
        WeightTransferEngineFactory.register_engine(BACKEND, FileTransferEngine)
