"""Weight transfer into vLLM through a safetensors file: the call gives the path, and each vLLM worker reads the file.

This file runs in vLLM's environment and imports nothing from groupwise. vLLM finds it by an entry point
`vllm.general_plugins`: in the folder next to it for servers that we start, else that of groupwise installed there with
--no-deps. `--weight-transfer-config '{"backend": "groupwise_file"}'` selects it. Both versions of vLLM's interface are
supported: up to release 0.24 the worker starts and finishes an update and passes its loader; later the engine does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from safetensors import safe_open
from vllm.distributed.weight_transfer.base import WeightTransferEngine, WeightTransferInitInfo, WeightTransferUpdateInfo
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory

BACKEND = "groupwise_file"
"""The name that a server is started with."""
HELD_WEIGHTS: dict[str, Mapping[str, torch.Tensor]] = {}
"""Weights of an update if trainer and vLLM share a process."""


@dataclass
class FileInitInfo(WeightTransferInitInfo):  # type: ignore[misc]
    """Empty: no setup is needed before the first file."""


@dataclass
class FileUpdateInfo(WeightTransferUpdateInfo):  # type: ignore[misc]
    """The arguments of `/update_weights`."""

    path: str = ""
    """A safetensors file on this machine, with the weight names of the model's folder."""
    held: str = ""
    """Instead of a file, if trainer and vLLM share a process: the name of the weights in `HELD_WEIGHTS`."""


class FileTransferEngine(WeightTransferEngine[FileInitInfo, FileUpdateInfo]):  # type: ignore[misc]
    """Reads weights from a file with vLLM's own loader, which knows the fused weights."""

    init_info_cls = FileInitInfo
    update_info_cls = FileUpdateInfo

    def init_transfer_engine(self, init_info: FileInitInfo) -> None:
        """Nothing to open."""

    def start_weight_update(self) -> None:
        """Undo vLLM's processing of loaded weights, layer by layer, before they are loaded again."""
        from vllm.model_executor.model_loader.reload import initialize_layerwise_reload

        with torch.device(self.device):
            initialize_layerwise_reload(self.model)

    def receive_weights(
        self,
        update_info: FileUpdateInfo,
        load_weights: Callable[[Iterable[tuple[str, torch.Tensor]]], object] | None = None,
    ) -> None:
        """Read a file into the model; vLLM's loader raises an error for an unknown name."""
        load = self.model.load_weights if load_weights is None else load_weights
        load(HELD_WEIGHTS[update_info.held].items() if update_info.held else read_weights(update_info.path))

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """Read a file before this returns.

        If the file does not fit, the update is finished all the same: else the next request would crash the server.
        """
        try:
            with torch.device(self.device):
                self.receive_weights(self.parse_update_info(update_info))
        except BaseException:
            self.finish_weight_update()
            raise
        if self.device.type != "cpu":
            torch.accelerator.synchronize()

    def finish_weight_update(self) -> None:
        """Let vLLM process the loaded weights again."""
        from vllm.model_executor.model_loader.reload import finalize_layerwise_reload

        with torch.device(self.device):
            finalize_layerwise_reload(self.model, self.model_config)
            self._pack_tied_head()

    def _pack_tied_head(self) -> None:
        """Update the packed copy of a head that is tied to the embeddings.

        The head shares their memory and is in no file, so vLLM does not process it after loading. On a CPU it computes
        with a packed copy, which would keep the old weights.
        """
        head = getattr(self.model, "lm_head", None)
        if head is not None and getattr(self.model_config.hf_config, "tie_word_embeddings", False):
            head.quant_method.process_weights_after_loading(head)

    @staticmethod
    def trainer_send_weights(iterator: Iterator[tuple[str, torch.Tensor]], trainer_args: dict[str, Any]) -> None:
        """Required by releases up to 0.24; never called, because the trainer writes the file itself."""
        raise NotImplementedError("weights go through a file, which the trainer writes itself")

    def shutdown(self) -> None:
        """Nothing to close."""


def read_weights(path: str) -> Iterator[tuple[str, torch.Tensor]]:
    with safe_open(path, framework="pt", device="cpu") as file:
        for name in file.keys():  # noqa: SIM118 - it is no mapping
            yield name, file.get_tensor(name)


def register() -> None:
    """Register the engine in vLLM. Every vLLM process calls this, maybe several times."""
    if BACKEND not in WeightTransferEngineFactory._registry:
        WeightTransferEngineFactory.register_engine(BACKEND, FileTransferEngine)
