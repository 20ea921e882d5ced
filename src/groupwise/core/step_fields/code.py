"""Functions written out from the table of step fields, as `dataclasses` writes its own.

Every step passes through them. A loop over the table takes half as long again as the code that one would write by hand;
so that code is written from the table, once, when a module is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


def compile_function(arguments: str, body: str, known: Mapping[str, Any] | None = None) -> Callable[..., Any]:
    """The function of some arguments with this body, which may use the names that are known.

    Nothing of the text may come from anywhere but the source of groupwise.

    >>> compile_function("row", "return 'cut' in row")({"cut": True})
    True
    """
    names = dict(known or {})
    indented = "".join(f"    {line}\n" for line in body.splitlines())
    exec(compile(f"def function({arguments}):\n{indented}", "<the table of step fields>", "exec"), names)
    function: Callable[..., Any] = names["function"]
    return function
