"""What a live engine answers, checked as it comes: an engine of a user's own may answer anything."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from groupwise.core.errors import EngineFault, GroupwiseError
from groupwise.core.text.exceptions import quote_error_with_place
from groupwise.core.text.value_words import describe_value
from groupwise.engines.engine import Generation

ADVICE = "`groupwise check engine` with the run file says which rules the engine breaks"


def check_number(engine: object, method: str, answers: Any, num: int) -> None:
    """Refuse answers that are no list, or not one for each request."""
    where = f"the engine {type(engine).__name__}: {method}"
    if not isinstance(answers, Sequence):
        raise EngineFault(f"{where} gave {describe_value(answers)} for {num} requests, but a list is needed; {ADVICE}")
    if len(answers) != num:
        raise EngineFault(f"{where} was given {num} requests and returned {len(answers)}; {ADVICE}")


def check_futures(engine: object, futures: Any, num: int) -> None:
    """Refuse what `submit` gave if it is not a future for each request."""
    check_number(engine, "submit", futures, num)
    for future in futures:
        if not isinstance(future, Future):
            raise EngineFault(
                f"the engine {type(engine).__name__}: submit gave {describe_value(future)} among its futures, but a "
                f"concurrent.futures.Future for each request is needed; {ADVICE}"
            )


def check_generation(engine: object, answer: Any) -> None:
    """Refuse an answer that is no generation."""
    if not isinstance(answer, Generation):
        raise EngineFault(
            f"the engine {type(engine).__name__} answered a request with {describe_value(answer)}, but a Generation is "
            f"needed; {ADVICE}"
        )


def read_future(engine: object, future: Future[Generation]) -> Generation:
    """What a future holds; what an engine raised that says nothing of where it came from is said with its name."""
    try:
        return future.result()
    except GroupwiseError:
        raise
    except Exception as error:
        reason = quote_error_with_place(error, type(engine).__module__)
        raise EngineFault(f"the engine {type(engine).__name__}: a future raised {reason}; {ADVICE}") from error
