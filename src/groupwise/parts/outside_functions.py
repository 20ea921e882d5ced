"""Functions that a run file names: `package.module:function`, or `path/to/file.py:function` for one in a file.

They are code from outside groupwise, and are loaded where what a run names may run, as its parts are.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import lru_cache
from hashlib import sha256
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Annotated, Any

from groupwise.parts.outside import PLACE, WITHOUT_TRUST, load_outside, may_run
from groupwise.parts.path_settings import make_absolute, resolve_by
from groupwise.system.errors import ConfigError
from groupwise.system.quoted_errors import quote_error
from groupwise.system.text import quote_line


def is_function_place(place: str) -> bool:
    """Whether a text can name a function.

    >>> is_function_place("rewards.py:score"), is_function_place("my.rewards:score"), is_function_place("score")
    (True, True, False)
    """
    file, _, name = place.rpartition(":")
    return PLACE.fullmatch(place) is not None or (file.endswith(".py") and name.isidentifier())


def resolve_place(place: str) -> str:
    """The place of a function, with the path of its file absolute."""
    file, _, name = place.rpartition(":")
    return f"{make_absolute(file, of=place)}:{name}" if file.endswith(".py") else place


def load_function(slot: str, place: str) -> Callable[..., Any]:
    """The function that a place names; whatever goes wrong is one sentence."""
    file, _, name = place.rpartition(":")
    if not file.endswith(".py"):
        function = load_outside(slot, place)
    elif not may_run():
        raise ConfigError(
            f"the {slot} {quote_line(place)!r} is {WITHOUT_TRUST}: it would run code from outside groupwise; add "
            "--trust if you trust whoever wrote this run"
        )
    else:
        function = getattr(_load_file(slot, Path(file).resolve()), name, None)
        if function is None:
            raise ConfigError(
                f"cannot load the {slot} {quote_line(place)!r}: the file has no {name!r}; name a function of it"
            )
    if not callable(function) or isinstance(function, type):
        raise ConfigError(f"the {slot} {quote_line(place)!r} is no function; name one")
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
    module = sys.modules[name] = module_from_spec(spec)  # where classes of the file look for their own module
    try:
        spec.loader.exec_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # it may raise anything, SystemExit too, and have a syntax error
        del sys.modules[name]
        raise ConfigError(
            f"cannot load the {slot}: running {str(path)!r} raised {quote_error(error)}; mend the file"
        ) from None
    return module


FunctionPlace = Annotated[str, resolve_by(resolve_place)]
"""A field that holds the place of a function."""
