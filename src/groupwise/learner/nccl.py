"""Weight sync over NCCL, from the learner's GPU to the GPUs of vLLM servers, by vLLM's trainer side.

It needs at least two GPUs and was not tested with GPUs. The calls around it are tested, and vLLM's trainer side without
the transfer itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol, runtime_checkable

from pydantic import Field

from groupwise.engines.http_client import ServerClient, ServerFault
from groupwise.learner.protocol import collect_weights
from groupwise.parts.part import Part
from groupwise.system.errors import ConfigError
from groupwise.system.processes import find_free_port
from groupwise.system.text import describe_value

if TYPE_CHECKING:
    import torch

    from groupwise.engines.engine import Engine
    from groupwise.engines.replica import Replica
    from groupwise.learner.protocol import NamedWeights


@runtime_checkable
class LoadsAtOnce(Protocol):
    """An engine that can send weights to all its servers at once."""

    def load_through(self, send: Callable[[Sequence[Replica], str], None], *, version: int) -> None:
        """Pause the servers, call `send` with them and a label for the weights, and resume them."""


class Nccl(Part, slot="weight_sync"):
    """Weights go over NCCL to vLLM servers, through vLLM's trainer side; needs two GPUs and is not tested on GPUs.

    Start the servers with `--weight-transfer-config '{"backend": "nccl"}'`, and install vLLM beside groupwise. A server
    that failed does not come back, and one that dies during a weight sync ends the run.
    """

    address: str = "127.0.0.1"
    """Address of the trainer's machine, for the servers."""
    port: Annotated[int, Field(ge=0, le=65535)] = 0
    """Port on that machine; 0 = any free port."""
    packed: bool = True
    """Send small weights together."""
    seconds: Annotated[float, Field(gt=0)] = 300.0
    """Time limit for each step of a weight sync."""

    def open(self, folder: Path | None) -> NcclTransfer:
        return NcclTransfer(self)


class NcclTransfer:
    """The NCCL group of the trainer and the servers' workers."""

    def __init__(self, settings: Nccl) -> None:
        self._settings = settings
        self._names: tuple[str, ...] = ()
        self._source: Any = None
        self._trainer: Any = None
        self._group: Any = None

    def sync(self, weights: NamedWeights, engine: Engine, *, version: int) -> None:
        table = collect_weights(weights)
        if not isinstance(engine, LoadsAtOnce):
            raise ConfigError(
                f"training.weight_sync: the engine {type(engine).__name__} has no servers to send to; use in_memory"
            )
        if find_spec("vllm") is None:
            raise ConfigError(
                "training.weight_sync: nccl sends by vLLM's trainer side, which is not here; run pip install "
                "'groupwise[vllm]', or use through_file"
            )
        for name, value in table.items():
            if value.device.type != "cuda":
                raise ConfigError(
                    f"training.weight_sync: nccl sends from a GPU, but {name} is on {value.device.type}; set device = "
                    "'cuda', or use through_file"
                )
        engine.load_through(lambda replicas, label: self._send(replicas, label, table), version=version)

    def _send(self, replicas: Sequence[Replica], label: str, weights: Mapping[str, torch.Tensor]) -> None:
        names = tuple(replica.name for replica in replicas)
        if names != self._names:  # also if one has left: the others form a new group
            self._form_group(replicas)
            self._names = names
        self._group.label, self._source.weights = label, weights
        try:
            self._trainer.send_weights()
        except BaseException:
            self._names = ()  # a process that still waits in NCCL cannot rejoin the group
            raise

    def _form_group(self, replicas: Sequence[Replica]) -> None:
        from vllm.distributed.weight_transfer import WeightTransferTrainerFactory
        from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerInitInfo

        settings = self._settings
        self._group = ServerGroup([replica.client for replica in replicas], seconds=settings.seconds)
        if self._trainer is not None:
            self._group.shutdown_weight_transfer_engine()
            self._trainer.shutdown()
        self._source = make_weight_source()
        info = NCCLTrainerInitInfo(
            rank=0,
            master_address=settings.address,
            master_port=settings.port or find_free_port(),
            world_size=1 + sum(self._group.world_sizes),
            packed=settings.packed,
        )
        self._trainer = WeightTransferTrainerFactory.trainer_init(info, client=self._group, source=self._source)


def make_weight_source() -> Any:
    """A source of weights for vLLM's trainer side; `weights` is the table to send next."""
    from vllm.distributed.weight_transfer import ParamMeta, WeightSource

    class TableSource(WeightSource):  # type: ignore[misc]
        """A learner's weights by name."""

        def __init__(self) -> None:
            self.weights: Mapping[str, torch.Tensor] = {}

        def metadata(self) -> list[Any]:
            return [ParamMeta(name, value.dtype, tuple(value.shape)) for name, value in self.weights.items()]

        def __iter__(self) -> Iterator[tuple[str, torch.Tensor]]:
            for name, value in self.weights.items():
                yield name, value.detach()

    return TableSource()


class ServerGroup:
    """vLLM's client for weight syncs (`VLLMWeightSyncClient`), for several servers at once.

    Worked example: two servers with two GPUs each. The trainer is rank 0 of a group of five. The first server's workers
    start at rank 1, the second's at rank 3.
    """

    def __init__(self, clients: Sequence[ServerClient], *, seconds: float) -> None:
        """`clients` are in the order of their ranks; `seconds` is the time-out of each step."""
        self._clients, self._seconds = tuple(clients), seconds
        self.label = ""
        """Label of the weights that are sent next."""
        self.world_sizes = [self._ask_world_size(client) for client in clients]
        """Number of workers per server."""

    def init_weight_transfer_engine(self, init_info: Mapping[str, Any]) -> None:
        """Let every server join the group at its own rank; all at once, because they wait for each other."""
        begin, questions = int(init_info["rank_offset"]), list[Any]()
        for size in self.world_sizes:
            questions.append({"init_info": {**init_info, "rank_offset": begin}})
            begin += size
        self._ask_all("/init_weight_transfer_engine", questions, "join the trainer's group")

    def start_weight_update(self) -> None:
        self._ask_all("/start_weight_update", [{}] * len(self._clients), "start to load new weights")

    def update_weights(self, update_info: Any) -> None:
        questions = [{"update_info": update_info}] * len(self._clients)
        self._ask_all("/update_weights", questions, "receive new weights")

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        questions = [{"weight_version": weight_version or self.label}] * len(self._clients)
        self._ask_all("/finish_weight_update", questions, "finish loading new weights")

    def shutdown_weight_transfer_engine(self) -> None:
        self._ask_all("/shutdown_weight_transfer_engine", [{}] * len(self._clients), "leave the trainer's group")

    def _ask_all(self, path: str, questions: Sequence[Any], what: str) -> None:
        """Ask all servers at once; the first fault is raised."""

        def ask(client: ServerClient, question: Any) -> None:
            client.post(path, question, what=what, timeout=self._seconds, is_fresh=True)

        with ThreadPoolExecutor(max_workers=len(self._clients)) as threads:
            list(threads.map(ask, self._clients, questions))

    def _ask_world_size(self, client: ServerClient) -> int:
        answer = client.get("/get_world_size", what="say how many workers it has", timeout=self._seconds)
        size = answer.get("world_size") if isinstance(answer, dict) else None
        if type(size) is not int or size < 1:
            raise ServerFault(
                f"the server {client.url} did not say how many workers it has ({describe_value(answer)}); is it vLLM?"
            )
        return size
