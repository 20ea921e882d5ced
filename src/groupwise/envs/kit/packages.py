"""Optional packages of environments: the installed version, and the error that says what to install."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from groupwise.system.errors import ConfigError


def report_missing_package(env: str, *, extra: str = "", then: str = "") -> ConfigError:
    """The error for an environment whose package is not installed.

    `extra` installs it (empty = the environment's name); `then` is a second command, if the extra is not enough.

    >>> print(report_missing_package("sokoban"))
    the environment 'sokoban' needs a package that is not installed; pip install 'groupwise[sokoban]'
    """
    command = f"pip install 'groupwise[{extra or env}]'"
    return ConfigError(
        f"the environment {env!r} needs a package that is not installed; {command}{f', then {then}' if then else ''}"
    )


def package_version(env: str, distribution: str) -> str:
    """The installed version of an environment's package, which is part of its tasks' identity."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        raise report_missing_package(env) from None
