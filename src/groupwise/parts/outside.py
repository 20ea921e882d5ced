"""Whether what a run file names may run: parts from outside groupwise, and environments that reach beyond their fields.

A run file can name any class of any package, and its environment may connect to a server, start a process or hand its
fields to somebody else's package. Whoever trains wants that. Whoever reads a run that somebody sent does not: within
`only_reading` nothing of it is imported or opened.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from operator import attrgetter

from groupwise.system.errors import ConfigError
from groupwise.system.secrets import redact
from groupwise.system.text import quote_line

WITHOUT_TRUST = "not loaded without --trust"
"""How errors and pages name what was left alone."""
PLACE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
"""`package.module:Class`, each of them a name of Python's."""

_may_run: ContextVar[bool] = ContextVar("may_run", default=True)


@contextmanager
def only_reading(*, trust: bool = False) -> Iterator[None]:
    """Import and open nothing that a run file names as long as the context lasts; with `trust`, all of it."""
    before = _may_run.set(trust)
    try:
        yield
    finally:
        _may_run.reset(before)


def may_run() -> bool:
    """Whether what a run file names may be imported and opened here."""
    return _may_run.get()


def load_outside(slot: str, kind: str) -> object:
    """What `package.module:Class` names, imported; whatever goes wrong is one sentence."""
    if "<locals>" in kind:
        raise ConfigError(
            f"cannot load the {slot} {quote_line(kind)!r}: it is made within a function; move the class to the top of "
            "its module"
        )
    if not PLACE.fullmatch(kind):
        raise ConfigError(f"{quote_line(repr(kind))} names no {slot}; write package.module:Class")
    if not may_run():
        raise ConfigError(
            f"the {slot} {quote_line(kind)!r} is {WITHOUT_TRUST}: it would run code from outside groupwise; add "
            "--trust if you trust whoever wrote this run"
        )
    module, _, name = kind.partition(":")
    try:
        return attrgetter(name)(import_module(module))
    except KeyboardInterrupt:  # the user's, not the module's
        raise
    except BaseException as error:  # a module may raise anything, SystemExit too, and have a syntax error
        raise ConfigError(f"cannot load the {slot} {quote_line(kind)!r}: {_reason(error, module)}") from None


def _reason(error: BaseException, module: str) -> str:
    try:
        message = quote_line(redact(str(error)))
    except Exception:
        message = "its message cannot be shown"
    if isinstance(error, ImportError | AttributeError):
        return f"{message}; check that the package is installed"
    if isinstance(error, SystemExit):
        return f"importing the module {module!r} ends the process (SystemExit: {message}); mend the module"
    return f"importing the module {module!r} failed ({type(error).__name__}: {message}); mend the module"
