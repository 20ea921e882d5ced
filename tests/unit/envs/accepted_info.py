"""The types of the info that environments tell, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from groupwise.data.field_kinds import is_count, is_finite, is_flag, is_integers, is_text
from groupwise.envs.kit.info import STAGES


def _is_list_of(accepts: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: type(value) is list and all(map(accepts, value))


def _is_map_of(accepts: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: type(value) is dict and all(map(accepts, value.values()))


def _is_share(value: Any) -> bool:
    return is_finite(value) and 0 <= value <= 1


def _is_call(value: Any) -> bool:
    return type(value) is dict and value.keys() == {"name", "arguments"} and type(value["arguments"]) is dict


def _are_checks(value: Any) -> bool:
    """Whether stages stand in their order, none is left out, and none follows one that failed."""
    return (
        type(value) is dict
        and bool(value)
        and all(map(is_flag, value.values()))
        and tuple(value) == STAGES[: len(value)]
        and all(list(value.values())[:-1])
    )


ACCEPTS: dict[str, Callable[[Any], bool]] = {
    "answer": is_text,
    "gold_answer": is_text,
    "exact": is_flag,
    "graded_match": _is_share,
    "match_parts": _is_map_of(_is_share),
    "calls": _is_list_of(_is_call),
    "num_calls": is_count,
    "gold_calls": _is_list_of(_is_call),
    "gold_entities": _is_list_of(is_text),
    "entities": _is_list_of(is_text),
    "documents": _is_list_of(is_text),
    "gold_documents": _is_list_of(is_text),
    "turn": is_count,
    "num_turns": is_count,
    "turns_passed": is_count,
    "checks": _are_checks,
    "expression": is_text,
    "lines_right": _is_list_of(is_flag),
    "lines_on_track": _is_list_of(is_flag),
    "line_ends": is_integers,
    "items": _is_list_of(is_text),
    "item_relevance": is_integers,
    "items_exact": _is_list_of(is_flag),
    "item_spans": _is_list_of(lambda span: is_integers(span) and len(span) == 2),
    "best_relevance": is_integers,
    "list_length": is_count,
}
"""Whether a value is of the type of an info value, by name."""
