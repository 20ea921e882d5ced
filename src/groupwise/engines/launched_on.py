"""What the launcher tells a run's processes about the cluster, by a variable: the run file names none."""

from __future__ import annotations

import os
from dataclasses import dataclass

from groupwise.system.errors import ConfigError

VARIABLE = "GROUPWISE_RAY"
"""The cluster's address, and the CPUs that each server reserves there: `10.0.0.1:6379 1`."""


@dataclass(frozen=True)
class LaunchedOn:
    """The cluster that a run was launched on."""

    address: str
    """Where its head is."""
    cpus: float
    """CPUs that each server of the run reserves."""

    def as_variables(self) -> dict[str, str]:
        """What a process of the run finds in its environment.

        >>> LaunchedOn("10.0.0.1:6379", 0.5).as_variables()
        {'GROUPWISE_RAY': '10.0.0.1:6379 0.5'}
        """
        return {VARIABLE: f"{self.address} {self.cpus:g}"}


def read_launched_on() -> LaunchedOn | None:
    """The cluster that this process was launched on; None where it was not."""
    content = os.environ.get(VARIABLE, "")
    if not content:
        return None
    try:
        address, cpus = content.split()
        return LaunchedOn(address, float(cpus))
    except ValueError:
        raise ConfigError(
            f"the variable {VARIABLE} is {content!r}, which is no address with a number of CPUs; unset it, and let "
            "`groupwise launch` set it"
        ) from None
