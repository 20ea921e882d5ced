"""Compare the speed of two checkouts of this project, which take turns.

    git worktree add ../before COMMIT
    python -m benchmarks.against_before ../before [--repeats 5] [--only credit,prefix,...] [--write FILE]

Measurements:

- `credit`: table and advantages of 100,000 recorded steps (from `benchmarks.credit`); advantages and samples of an
  update of 10,000 steps
- `prefix`: packing samples and training on them, with and without shared prefixes
- `loop`: an update of `benchmarks.loop` (its first case: a long prompt, a short action) on one thread
- `run`: an update of the household example as in `groupwise train`, with journal and checkpoints, with and without
  workers
- `envs`: steps per second of many environments at once, through the environment runner, with and without a worker
- `remote`: one call of a remote engine, with 8 and with 128 requests, to an engine that computes nothing (this
  checkout's script on both)
- `start`: `groupwise --help`, and opening the household run (this checkout's script on both)

The other measurements are processes with the product and the script of one checkout, because names differ between
them. Before you trust a result, check that both scripts measure the same thing under one name. The result has
the medians of each side and of the ratios of neighbouring runs. It also has processor seconds, which other work on the
machine hardly changes.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.result_file import write_result

HERE = Path(__file__).parents[1]
ENVS = ("household", "gridworld", "countdown", "lookup", "alfworld", "reasoning_gym, chain_sum")
"""Environments of `benchmarks.envs` that are asked; one that cannot run here is left out."""
UPDATES = 8
SECONDS = 3.0
VOCABULARY = 152_000

Numbers = dict[str, dict[str, float]]
"""Wall and processor seconds by name of the measurement."""


def time_credit() -> Numbers:
    """Seconds of table and advantages of 100,000 steps, and of samples from the trajectories of an update of 10,000."""
    from benchmarks.credit import METHODS, columns, ours
    from groupwise import Step, StopReason, Task, Trajectory
    from groupwise.training.samples import credit_batch, make_samples

    recorded = columns(100_000)
    works: dict[str, Callable[[], object]] = {
        f"credit, {name}": lambda name=name: ours(name, recorded)  # type: ignore[misc]
        for name in METHODS
    }
    played = [
        Trajectory(
            id=f"{number}",
            task=Task(id=f"{number // 8}"),
            rollout=number % 8,
            steps=tuple(
                Step(
                    index=index,
                    reward=float(number % 3 == 0) if index == 24 else 0.0,
                    state_key=f"{(number * index) % 7}",
                    prompt_ids=(1, 2, 3),
                    response_ids=(4, 5),
                    logp_behaviour=(-1.0, -2.0),
                )
                for index in range(25)
            ),
            scores={"return": float(number % 3 == 0)},
            stop=StopReason.TERMINATED,
            versions=(0,),
        )
        for number in range(400)
    ]
    works["update's samples, hgpo"] = lambda: make_samples(credit_batch(METHODS["hgpo"], played, version=0))
    return {name: _best_of(work) for name, work in works.items()}


def time_prefix() -> Numbers:
    """Seconds of packing full-history samples, and of a forward and backward pass with prefixes shared and not."""
    import torch

    from benchmarks.prefix.layouts import LAYOUTS
    from benchmarks.prefix.measure import clear, train, updates
    from benchmarks.prefix.on_cpu import ROLLOUTS, llama, make_up

    torch.set_num_threads(1)
    net = llama(hidden=128, layers=4, heads=4, kv_heads=2, vocabulary=2_000)
    samples = make_up("small", "full", num_tasks=1, rollouts=ROLLOUTS).samples

    def learn(update: Any) -> None:
        train(net, update)
        clear(net)

    numbers = {"packing, shared": _best_of(lambda: LAYOUTS["shared"](samples, 8192))}
    for name, update in updates(samples, ["shared", "packed"], budget=8192, device="cpu").items():
        numbers[f"training, {name}"] = _best_of(lambda update=update: learn(update))  # type: ignore[misc]
    return numbers


def _best_of(work: Callable[[], object], times: int = 5) -> dict[str, float]:
    """The lowest wall and processor seconds of several repeats, after one that is not counted."""
    work()
    walls, cores = [], []
    for _ in range(times):
        wall, core = time.perf_counter(), time.process_time()
        work()
        walls.append(time.perf_counter() - wall)
        cores.append(time.process_time() - core)
    return {"seconds": min(walls), "core_seconds": min(cores)}


def time_loop() -> Numbers:
    """An update of `benchmarks.loop`, ours alone."""
    from benchmarks.loop import __main__ as loop
    from benchmarks.loop.job import Job
    from benchmarks.loop.ours import measure

    max_tokens, examples, kl = loop.CASES[0]
    with tempfile.TemporaryDirectory() as folder:
        loop.make_model(Path(folder))
        loop.write_tasks(Path(folder), examples)
        job = Job(
            model=folder,
            folder=f"{folder}/run",
            threads=1,
            tasks=loop.TASKS,
            examples=examples,
            max_tokens=max_tokens,
            warm=loop.WARM,
            updates=loop.UPDATES,
            kl=kl,
        )
        timed = measure(job)
    return {"loop": {"seconds": timed["seconds"], "core_seconds": timed["core_seconds"]}}


def time_run() -> Numbers:
    """An update of the household example, the first two left out."""
    import torch

    from groupwise import RunObserver, load_run, open_run, train

    class Clock(RunObserver):
        def __init__(self) -> None:
            self.marks: list[tuple[float, float]] = []

        def on_update(self, update: Any) -> None:
            self.marks.append((time.perf_counter(), time.process_time()))

    torch.set_num_threads(1)
    numbers: Numbers = {}
    for workers in (0, 2):
        changes = [f"rollout.workers={workers}", f"training.updates={UPDATES + 2}", "evaluation.tasks=0", "threads=1"]
        config = load_run(HERE / "examples" / "household.toml", overrides=[*changes, "warm_start.tasks=40"])
        clock = Clock()
        with tempfile.TemporaryDirectory() as folder:
            train(open_run(config, Path(folder) / "run"), observers=[clock])
        begin, end = clock.marks[1], clock.marks[-1]
        seconds, core_seconds = ((b - a) / UPDATES for a, b in zip(begin, end, strict=True))
        numbers[f"run, {workers} workers"] = {"seconds": seconds, "core_seconds": core_seconds}
    return numbers


def time_envs() -> Numbers:
    """Seconds of a thousand steps of each environment through its runner."""
    from benchmarks.envs import choose_actions, many, open_subject, subjects

    numbers: Numbers = {}
    for name in ENVS:
        subject = open_subject(subjects()[name])
        if subject is None:
            continue
        for workers in (0, 1):
            began = time.process_time()
            played = many(subject.part, choose_actions(subject), workers=workers, instances=32, seconds=SECONDS)
            used = time.process_time() - began
            if "left_out" not in played:
                seconds = 1000 / played["steps_per_second"]
                # With workers this is the loop's own share; the worker's stands in the wall time.
                core = 1000 * used / (played["steps_per_second"] * SECONDS)
                numbers[f"{name}, {workers} workers"] = {"seconds": seconds, "core_seconds": core}
    return numbers


def serve_scripted(port_sent: Any) -> None:
    """Serve an engine that answers at once, with the server of either checkout, and send the port."""
    try:
        from groupwise.engines.server.app import make_app, make_server, take_port
        from groupwise.engines.server.served_model import ModelCard, ServedModel
    except ImportError:
        from groupwise.engines.remote.server.http_server import EngineServer  # type: ignore[import-not-found]
        from groupwise.engines.remote.server.routes import Routes  # type: ignore[import-not-found]
        from groupwise.engines.remote.server.served_model import (  # type: ignore[import-not-found]
            ModelCard,
            ServedModel,
        )

        server = EngineServer("127.0.0.1", 0)
    else:
        server = None
    from groupwise.engines.scripted import ScriptedEngine

    def answer(request: Any) -> range:
        return range(100_000, 100_000 + request.max_tokens)

    card = {"name": "policy", "root": "nowhere", "precision": "float32", "vocabulary": VOCABULARY}
    if server:
        server.listen(Routes(ServedModel(lambda: ScriptedEngine(answer), dict, ModelCard(dtype="float32", **card))))
        port_sent.send(server.server_address[1])
        server.serve_forever()
    else:
        place = take_port("127.0.0.1", 0)
        port_sent.send(place.getsockname()[1])
        make_server(make_app(ServedModel(lambda: ScriptedEngine(answer), dict, ModelCard(**card)))).run(sockets=[place])


def time_remote() -> Numbers:
    """Seconds of a call of a remote engine, from the list of requests to the list of generations."""
    from inspect import signature

    from groupwise.engines.engine import Request

    try:
        from groupwise.engines.client import Replicas, ServerEngine
        from groupwise.engines.http_client import ServerClient, ServerFault
        from groupwise.engines.replica import Replica, ask_server
    except ImportError:
        from groupwise.engines.remote.engine import ServerEngine  # type: ignore[import-not-found]
        from groupwise.engines.remote.http_client import ServerClient, ServerFault  # type: ignore[import-not-found]
        from groupwise.engines.remote.replica import Replica  # type: ignore[import-not-found]
        from groupwise.engines.remote.replicas import Replicas  # type: ignore[import-not-found]
        from groupwise.engines.remote.server_facts import ask_server  # type: ignore[import-not-found]

    spawning = multiprocessing.get_context("spawn")
    port_read, port_sent = spawning.Pipe(duplex=False)
    server = spawning.Process(target=serve_scripted, args=(port_sent,), daemon=True)
    server.start()
    url = f"http://127.0.0.1:{port_read.recv()}"
    client, deadline = ServerClient(url), time.monotonic() + 60
    while True:
        try:
            client.check_health()
            break
        except ServerFault:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)

    def describe(client: Any) -> Any:
        return ask_server(client, timeout=10)

    options: dict[str, Any] = {"vocabulary": VOCABULARY, "request_timeout": 60}
    options |= {name: 60 for name in signature(Replica).parameters if name in ("sync_timeout", "handover_timeout")}
    replica = Replica(0, client, describe(client), **options)
    engine = ServerEngine(Replicas([replica], max_in_flight=1), describe=describe)
    numbers: Numbers = {}
    for size, times in ((8, 200), (128, 30)):
        requests = [
            Request(prompt_ids=tuple(range(100_000, 100_400)), seed=seed, max_tokens=60) for seed in range(size)
        ]
        taken = []
        for _ in range(times):
            wall, core = time.perf_counter(), time.process_time()
            engine.generate(requests)
            taken.append((time.perf_counter() - wall, time.process_time() - core))
        walls, cores = zip(*taken[times // 10 :], strict=True)
        # A clock of processor time that is this short is coarse: its mean says more than its median.
        numbers[f"remote call, {size} requests"] = {
            "seconds": statistics.median(walls),
            "core_seconds": statistics.mean(cores),
        }
    engine.close()
    server.terminate()
    server.join()
    return numbers


def time_start() -> Numbers:
    """Seconds of `groupwise --help` in a process of its own, and of opening a run that was never trained."""
    import torch

    from groupwise import load_run, open_run

    def ask_for_help() -> dict[str, float]:
        wall, core = time.perf_counter(), sum(os.times()[2:4])
        subprocess.run([sys.executable, "-m", "groupwise", "--help"], check=True, capture_output=True)
        return {"seconds": time.perf_counter() - wall, "core_seconds": sum(os.times()[2:4]) - core}

    def open_one() -> None:
        with tempfile.TemporaryDirectory() as folder:
            open_run(config, Path(folder) / "run").close()

    torch.set_num_threads(1)
    asked = [ask_for_help() for _ in range(6)][1:]
    config = load_run(Path("examples/household.toml"), overrides=["rollout.workers=0", "threads=1"])
    return {
        "groupwise --help": {clock: min(times[clock] for times in asked) for clock in ("seconds", "core_seconds")},
        "opening a run": _best_of(open_one),
    }


PARTS: Mapping[str, Callable[[], Numbers]] = {
    "credit": time_credit,
    "prefix": time_prefix,
    "loop": time_loop,
    "run": time_run,
    "envs": time_envs,
    "remote": time_remote,
    "start": time_start,
}


def measure(checkout: Path, part: str) -> Numbers:
    """One part with one checkout's product and script, in a process of its own."""
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "PYTHONPATH": os.pathsep.join([str(checkout.resolve() / "src"), str(checkout.resolve())]),
    }
    script = [str(Path(__file__).resolve())] if part in ("remote", "start") else ["-m", "benchmarks.against_before"]
    command = [sys.executable, "-W", "ignore", *script, "--probe", part, str(checkout)]
    answer = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)
    if answer.returncode:
        sys.exit(f"{part} failed with {checkout}:\n{answer.stderr[-3000:]}")
    numbers: Numbers = json.loads(answer.stdout.splitlines()[-1])
    return numbers


def compare(before: Path, part: str, repeats: int) -> dict[str, Any]:
    """Alternate old and new; returns the medians and the ratio of old to new per measurement."""
    pairs = [(measure(before, part), measure(HERE, part)) for _ in range(repeats)]
    compared: dict[str, Any] = {}
    for name in pairs[0][0]:
        sides = [(old[name], new[name]) for old, new in pairs]
        compared[name] = {
            clock: {
                "before": statistics.median(old[clock] for old, _ in sides),
                "now": statistics.median(new[clock] for _, new in sides),
                "times_as_fast": statistics.median(old[clock] / new[clock] for old, new in sides),
                "pairs": [[round(old[clock], 5), round(new[clock], 5)] for old, new in sides],
            }
            for clock in ("seconds", "core_seconds")
        }
        shown = {clock: f"{values['times_as_fast']:.3f}x" for clock, values in compared[name].items()}
        print(f"{name}: {shown['seconds']} by the clock, {shown['core_seconds']} by the processor", flush=True)
    return compared


def commit_of(checkout: Path) -> str:
    """The commit of a checkout."""
    asked = subprocess.run(["git", "rev-parse", "HEAD"], cwd=checkout, capture_output=True, text=True, check=False)
    return asked.stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, help="the older checkout")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(PARTS))
    parser.add_argument("--probe", choices=PARTS, help=argparse.SUPPRESS)
    parser.add_argument("--write", type=Path, help="write the result as JSON")
    options = parser.parse_args()
    if options.probe:
        print(json.dumps(PARTS[options.probe]()))
        return
    busy = os.getloadavg()[0]
    result = {
        "command": f"python -m benchmarks.against_before BEFORE --repeats {options.repeats} --only "
        + ",".join(options.only),
        "before": commit_of(options.before),
        "now": commit_of(HERE),
        "machine": f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores, Python {platform.python_version()}",
        "load_average_before": round(busy, 1),
        "measured": {part: compare(options.before, part, options.repeats) for part in options.only},
    }
    write_result(result, options.write)


if __name__ == "__main__":
    main()
