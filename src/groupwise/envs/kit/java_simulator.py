"""Simulators on Java: one virtual machine per process and package, started at first use and again if it died.

Each rollout has its own simulator in it. A simulator cannot be copied, but it is deterministic. So a fork, and a
rollout whose virtual machine died, repeat their actions in a new one.
"""

from __future__ import annotations

import os
import re
import shutil
import zipfile
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from groupwise.envs.kit.packages import import_package
from groupwise.system.errors import ConfigError, EnvironmentFault

Answer = TypeVar("Answer")
WORD = re.compile(rb"[A-Za-z0-9]+")
TEXT_TAG = 1
WIDE_BYTES = 8
"""Bytes of a constant that counts as two."""
CONSTANT_BYTES = {TEXT_TAG: 2, 5: WIDE_BYTES, 6: WIDE_BYTES, 7: 2, 8: 2, 15: 3, 16: 2, 19: 2, 20: 2}
"""Bytes after a constant's tag; 4 after others, and a text's own length after its two."""

_RUNNING: dict[tuple[int, str], Any] = {}
"""Gateways by process and package: a forked process must not talk through its parent's."""


def connect_machine(kind: str, package: str, jar: str) -> Any:
    """The virtual machine with the classes of a package's jar; it is started if none runs."""
    running = _RUNNING.get((os.getpid(), package))
    if running is None or running.java_process.poll() is not None:
        file = find_jar(kind, package, jar)
        if shutil.which("java") is None:
            raise ConfigError(f"the environment {kind!r} needs Java, and `java` was not found; install a Java runtime")
        java = import_module("py4j.java_gateway")
        try:
            port, process = java.launch_gateway(
                classpath=str(file), die_on_exit=True, cwd=str(file.parent), return_proc=True
            )
        except Exception as error:  # py4j raises different errors, depending on the first line of the child's output
            raise EnvironmentFault(f"{kind}: the Java virtual machine did not start ({error})") from None
        parameters = java.GatewayParameters(auto_field=True, port=port)
        running = java.JavaGateway(gateway_parameters=parameters, java_process=process)
        _RUNNING[os.getpid(), package] = running
    return running.jvm


def read_texts(machine: Any, texts: Any) -> list[str]:
    """The texts in a Java list, sent as one text because that is faster."""
    joined = str(machine.java.lang.String.join("\n", texts))
    return joined.split("\n") if joined else []


def find_jar(kind: str, package: str, jar: str) -> Path:
    return Path(str(import_package(kind, package).__file__)).parent / jar


@cache
def collect_words(jar: Path, folder: str) -> tuple[str, ...]:
    """Every word in the classes and data files of a simulator: all that it can say, and more."""
    with zipfile.ZipFile(jar) as archive:
        names = [name for name in archive.namelist() if name.startswith(folder) and name.endswith(".class")]
        inside = [text for name in names for text in _read_constants(archive.read(name))]
    inside += [file.read_bytes() for file in sorted(jar.parent.glob("*.json"))]
    return tuple(sorted({word.decode().lower() for content in inside for word in WORD.findall(content)}))


def _read_constants(content: bytes) -> Iterator[bytes]:
    """The texts in a class file's table of constants (the Java virtual machine's specification, 4.4)."""
    at, left = 10, int.from_bytes(content[8:10], "big") - 1
    while left > 0:
        tag = content[at]
        size = CONSTANT_BYTES.get(tag, 4)
        if tag == TEXT_TAG:
            size += int.from_bytes(content[at + 1 : at + 3], "big")
            yield content[at + 3 : at + 1 + size]
        at, left = at + 1 + size, left - (2 if CONSTANT_BYTES.get(tag) == WIDE_BYTES else 1)


class Simulator:
    """A simulator and its actions so far; if its virtual machine dies, they are repeated in a new one."""

    java: Any

    def __init__(self, make: Callable[[], Any], step: Callable[[Any, str], Any]) -> None:
        self._make, self._step, self._actions = make, step, list[str]()
        try:
            self.renew()
        except _name_losses():  # the virtual machine was lost meanwhile; the next is a new one
            self.renew()

    def act(self, action: str) -> None:
        self.ask(lambda java: self._step(java, action))
        self._actions.append(action)

    def ask(self, question: Callable[[Any], Answer]) -> Answer:
        """Ask the simulator; if its virtual machine died, ask again in a new one."""
        try:
            return question(self.java)
        except _name_losses():
            self.renew()
            return question(self.java)

    def renew(self) -> None:
        """Continue in a new simulator in the same state."""
        java = self._make()
        for action in self._actions:
            self._step(java, action)
        self.java = java

    def next_action_of(self, plan: Sequence[str]) -> str | None:
        """The next action of a plan; None if it is at its end, or if the actions so far differ."""
        done = len(self._actions)
        return plan[done] if done < len(plan) and self._actions == list(plan[:done]) else None

    def fork(self) -> Simulator:
        twin = copy(self)
        twin._actions = self._actions.copy()
        twin.renew()
        return twin


def _name_losses() -> tuple[type[Exception], ...]:
    return import_module("py4j.protocol").Py4JNetworkError, OSError
