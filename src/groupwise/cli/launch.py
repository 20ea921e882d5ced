"""`groupwise launch`: train on the nodes of a Ray cluster."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from groupwise.cli.arguments import Set, Unset, argument, flag, load_run_file, need_trainer, option
from groupwise.cli.screen import errors, print_line
from groupwise.store.run_folder import RunPaths
from groupwise.system.errors import ConfigError

if TYPE_CHECKING:
    from groupwise.engines.ray_cluster import RayCluster
    from groupwise.training.launch import RankStatuses


def launch(
    file: Annotated[Path, argument("RUN.toml", "Run file, or with --resume a run folder.")],
    out: Annotated[Path | None, option("FOLDER", "Run folder; default: runs/NAME.")] = None,
    set_: Set = None,
    unset: Unset = None,
    resume: Annotated[bool, flag("--resume", "Resume from the last checkpoint in the run folder.")] = False,
    ranks: Annotated[int, option("N", "Number of learner processes.", min=1)] = 1,
    gpus: Annotated[int, option("N", "GPUs per rank: 0 (CPU only) or 1.", min=0, max=1)] = 0,
    cpus: Annotated[float, option("NUMBER", "CPUs to reserve per rank and per server.", min=0.01)] = 1.0,
    address: Annotated[
        str, option("HOST:PORT", "Address of the cluster; local = start one on this machine.")
    ] = "local",
    restarts: Annotated[int, option("N", "Largest number of restarts after a process died.", min=0)] = 3,
    timeout: Annotated[float, option("SECONDS", "Seconds to wait for free resources.", min=1)] = 600.0,
) -> None:
    """Train on a Ray cluster. Ranks and servers run there and are restarted if they die."""
    from groupwise.engines.ray_cluster import RayCluster
    from groupwise.training.launch import run_until_it_ends

    need_trainer()
    folder = (out or (file if file.is_dir() else Path("runs") / file.stem)).absolute()
    if file.exists() and RunPaths(folder).holds_run() and not resume:
        raise ConfigError(f"{folder} already has a run; continue it with --resume, or choose another folder with --out")
    load_run_file(file, set_, unset)  # errors in it are reported before anything starts
    command = [sys.executable, "-P", "-m", "groupwise", "train", str(file.absolute()), "--out", str(folder), "--plain"]
    command += [word for key in unset or () for word in ("--unset", key)]
    command += [word for setting in set_ or () for word in ("--set", setting)]
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends everything as Ctrl-C does
    try:
        with RayCluster(address) as cluster:
            start = partial(_run_once, cluster, command, ranks=ranks, cpus=cpus, gpus=gpus, timeout=timeout)
            status = run_until_it_ends(
                start,
                has_begun=RunPaths(folder).holds_run,
                resume=resume,
                restarts=restarts,
                say=partial(print_line, to=errors()),
            )
    except KeyboardInterrupt:
        again = f"groupwise launch {shlex.quote(str(file))} --out {shlex.quote(str(folder))} --resume"
        print_line(f"stopped; resume with: {again}", to=errors())
        raise typer.Exit(130) from None
    if status:
        raise typer.Exit(status)


def _run_once(
    cluster: RayCluster, command: list[str], resume: bool, *, ranks: int, cpus: float, gpus: int, timeout: float
) -> RankStatuses:
    from groupwise.engines.ray_cluster import LaunchedOn
    from groupwise.training.launch import HostedRank, run_ranks

    # The ranks run this code, even if it is not the installed one.
    paths = [str(Path(__file__).parents[2]), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    variables = {"PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}
    variables |= LaunchedOn(cluster.address, cpus).as_variables()
    room = cluster.reserve(ranks, cpus=cpus, gpus=gpus, timeout=timeout)
    try:
        places = [
            cluster.place(HostedRank, name=f"rank {rank}", cpus=cpus, gpus=gpus, room=(room, rank))
            for rank in range(ranks)
        ]
        again = ["--resume"] if resume else []
        return run_ranks(places, [*command, *again], variables, with_gpus=gpus > 0, show=_show)
    finally:
        room.give_back()


def _show(rank: int, text: str) -> None:
    for line in text.splitlines():
        print_line(f"rank {rank}: {line}" if rank else line)
