"""Servers that whoever launched the run has started beside it, named by a variable and not by the run file."""

from __future__ import annotations

import logging
import os
import time

from groupwise.core.errors import ConfigError
from groupwise.core.parts.part import Part, name_of

VARIABLE = "GROUPWISE_ENGINE_URLS"
"""Their URLs, separated by spaces or commas: the same run file then serves a laptop, Slurm and Kubernetes."""
POLL_SECONDS = 1.0

_log = logging.getLogger(__name__)


def read_launched_urls() -> tuple[str, ...]:
    """The URLs that the variable names; empty where it is not set."""
    return tuple(os.environ.get(VARIABLE, "").replace(",", " ").split())


def choose_urls(named: tuple[str, ...]) -> tuple[str, ...]:
    """The servers to use: those of the run file or those of the variable; different ones at once are refused."""
    launched = read_launched_urls()
    if named and launched and set(named) != set(launched):
        raise ConfigError(
            f"engine.urls names {', '.join(named)}, but the variable {VARIABLE} names {', '.join(launched)}; leave the "
            "setting out, or unset the variable"
        )
    return named or launched


def check_uses_servers(engine: Part) -> None:
    """Refuse an engine of this process where servers were launched for it: they would stand idle, unnoticed."""
    launched = read_launched_urls()
    if launched:
        raise ConfigError(
            f"the variable {VARIABLE} names {len(launched)} server{'s' if len(launched) > 1 else ''}, but the engine "
            f'{name_of(engine)} uses none; set engine.kind = "server" or "vllm", or unset the variable'
        )


def wait_for_launched(urls: tuple[str, ...], *, timeout: float) -> None:
    """Wait until servers answer that were launched together with the run, and may still be loading.

    Args:
        urls: where they listen.
        timeout: seconds until all must be healthy; then the fault of the one that is not is raised.
    """
    from groupwise.engines.remote.http_client import ServerFault, open_clients

    deadline = time.monotonic() + timeout
    for client in open_clients(urls, setting=VARIABLE):
        has_said = False
        while True:
            try:
                with client:
                    client.check_health()
                break
            except ServerFault as fault:
                if time.monotonic() > deadline:
                    raise ConfigError(
                        f"{VARIABLE}: {fault} ({timeout:g} seconds, engine.start_timeout, have passed)"
                    ) from None
                if not has_said:
                    _log.warning("waiting up to %g seconds for the server %s", timeout, client.url)
                    has_said = True
            time.sleep(POLL_SECONDS)
