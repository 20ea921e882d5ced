"""Loads the external parts and functions that a run file names, if the run is trusted.

A run file can name any class of any package, and its environment may use servers, processes or other packages. This is
wanted in training, but not when you read a run of another person: within `only_reading` nothing is imported or opened.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from hashlib import sha256
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any

from groupwise.parts.path_settings import make_absolute, resolve_by
from groupwise.system.errors import ConfigError
from groupwise.system.quoted_errors import quote_error
from groupwise.system.secrets import redact
from groupwise.system.text import quote_line

WITHOUT_TRUST = "not loaded without --trust"
"""How errors and pages call code that was not loaded."""
PLACE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
"""`package.module:Class`."""

_may_run: ContextVar[bool] = ContextVar("may_run", default=True)


@contextmanager
def only_reading(*, trust: bool = False) -> Iterator[None]:
    """Within this context, import and open nothing that a run file names, unless `trust` is True."""
    before = _may_run.set(trust)
    try:
        yield
    finally:
        _may_run.reset(before)


def may_run() -> bool:
    """Whether code that a run file names may be imported and opened here."""
    return _may_run.get()


def load_outside(slot: str, kind: str) -> object:
    """Import `package.module:Class`; every problem is a ConfigError."""
    if "<locals>" in kind:
        raise ConfigError(
            f"cannot load the {slot} {quote_line(kind)!r}: it is defined inside a function; move it to the top level "
            "of its module"
        )
    if not PLACE.fullmatch(kind):
        raise ConfigError(f"there is no {slot} {quote_line(repr(kind))}; write package.module:Class")
    _check_may_run(slot, kind)
    module, _, name = kind.partition(":")
    try:
        return attrgetter(name)(import_module(module))
    except KeyboardInterrupt:  # the user's, not the module's
        raise
    except BaseException as error:  # also SystemExit and syntax errors
        try:
            message = quote_line(redact(str(error)))
        except Exception:  # from an external __str__
            message = "its message cannot be shown"
        if isinstance(error, ImportError):
            reason = f"{message}; check that the package is installed"
        elif isinstance(error, AttributeError):
            reason = f"{message}; check the name after the colon"
        elif isinstance(error, SystemExit):
            reason = f"importing the module {module!r} ends the process (SystemExit: {message}); fix the module"
        else:
            reason = f"importing the module {module!r} failed ({type(error).__name__}: {message}); fix the module"
        raise ConfigError(f"cannot load the {slot} {quote_line(kind)!r}: {reason}") from None


def _check_may_run(slot: str, place: str) -> None:
    if not may_run():
        raise ConfigError(
            f"the {slot} {quote_line(place)!r} is {WITHOUT_TRUST}: it would run code from outside groupwise; add "
            "--trust if you trust the author of this run"
        )


# Functions that a run file names: `package.module:function`, or `path/to/file.py:function`.


def is_function_place(place: str) -> bool:
    """Whether a text has the form of a function's place.

    >>> is_function_place("rewards.py:score"), is_function_place("my.rewards:score"), is_function_place("score")
    (True, True, False)
    """
    file, _, name = place.rpartition(":")
    return PLACE.fullmatch(place) is not None or (file.endswith(".py") and name.isidentifier())


def resolve_place(place: str) -> str:
    file, _, name = place.rpartition(":")
    return f"{make_absolute(file, of=place)}:{name}" if file.endswith(".py") else place


def load_function(slot: str, place: str) -> Callable[..., Any]:
    """The function at a place; every problem is a ConfigError."""
    file, _, name = place.rpartition(":")
    if not file.endswith(".py"):
        function = load_outside(slot, place)
    else:
        _check_may_run(slot, place)
        function = getattr(_load_file(slot, Path(file).resolve()), name, None)
        if function is None:
            raise ConfigError(
                f"cannot load the {slot} {quote_line(place)!r}: the file has no {name!r}; give the name of a function "
                "in it"
            )
    if not callable(function) or isinstance(function, type):
        raise ConfigError(f"the {slot} {quote_line(place)!r} is not a function; give the name of a function")
    return function


@lru_cache
def _load_file(slot: str, path: Path) -> Any:
    """Run a file as a module, once."""
    if not path.is_file():
        raise ConfigError(f"cannot load the {slot}: there is no file {str(path)!r}; paths are relative to the run file")
    name = f"groupwise_file_{sha256(str(path).encode()).hexdigest()[:16]}"
    spec = spec_from_file_location(name, path)
    assert spec is not None, "a file that ends with .py has a specification"
    assert spec.loader is not None, "and a loader"
    module = sys.modules[name] = module_from_spec(spec)  # dataclasses and pydantic models look up their module here
    try:
        spec.loader.exec_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # also SystemExit and syntax errors
        del sys.modules[name]
        raise ConfigError(
            f"cannot load the {slot}: running {str(path)!r} raised {quote_error(error)}; fix the file"
        ) from None
    return module


FunctionPlace = Annotated[str, resolve_by(resolve_place)]
"""A field with the place of a function."""
