"""What environments tell of a step beside its outcome: names of facts, one for one thing, and what each holds.

An environment lists the facts that it may tell in a class variable `writes`, as measures do. What it cannot know of a
step is absent there: no 0, no False and no empty text stands for "not known".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from groupwise.data.field_kinds import is_count, is_finite, is_flag, is_integer, is_integers, is_text
from groupwise.envs.kit.words import split_words
from groupwise.system.text import escape_surrogates

MAX_TEXT_CHARACTERS = 1000
"""Characters of what a policy said that a fact holds: an answer of any length must not be a fault."""
STAGES = ("read", "fits", "right")
"""The checks of a step in their order: a later one is made only where those before it passed."""


@dataclass(frozen=True, slots=True)
class KnownFact:
    """A fact that environments tell under one name, with one meaning in all of them."""

    accepts: Callable[[Any], bool]
    """Whether a value is of its type."""
    takes: str
    """Its type, in words."""
    meaning: str
    """What it says."""
    present: str
    """On which steps it stands; on others it is absent."""


def write_text(text: str) -> str:
    """What a policy said as facts hold it: no half characters, and not longer than anything that is meant."""
    return escape_surrogates(text[:MAX_TEXT_CHARACTERS])


def write_value(value: Any) -> Any:
    """An argument of a call as a JSON value; what JSON has not becomes its text, so that no argument is a fault.

    >>> write_value((1, 2.5, {3: b"x"})), write_value(float("inf"))
    ([1, 2.5, {'3': "b'x'"}], 'inf')
    """
    if isinstance(value, str):
        return write_text(value)
    if value is None or is_flag(value) or is_integer(value) or (is_finite(value) and type(value) is float):
        return value
    if isinstance(value, list | tuple):
        return [write_value(entry) for entry in value]
    if isinstance(value, dict):
        return {write_text(str(name)): write_value(entry) for name, entry in value.items()}
    return write_text(repr(value))


def write_call(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """A tool call as facts hold it.

    >>> write_call("search", {"person": "anna"})
    {'name': 'search', 'arguments': {'person': 'anna'}}
    """
    return {"name": write_text(name), "arguments": write_value(dict(arguments))}


def write_checks(*, read: bool, fits: bool | None = None, right: bool | None = None) -> dict[str, bool]:
    """The checks that were made of a step, in their order; None = it did not come to that.

    >>> write_checks(read=True, fits=False)
    {'read': True, 'fits': False}
    """
    return {stage: passed for stage, passed in zip(STAGES, (read, fits, right), strict=True) if passed is not None}


def list_named(entities: Iterable[str], text: str) -> list[str]:
    """Those of some entities that a text names, word by word and in any case.

    >>> list_named(["Ben", "New Town", "Oslo"], "ben went to New Townley, then to Oslo.")
    ['Ben', 'Oslo']
    """
    words = f" {' '.join(split_words(text))} "
    return [entity for entity in entities if f" {' '.join(split_words(entity))} " in words]


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


EVERY, ANSWERING = "every step", "steps that answer"

FACTS: Mapping[str, KnownFact] = {
    "answer": KnownFact(
        is_text,
        "text",
        "what was answered, as answers are compared: equal texts are one answer, and one that counts as right is "
        "`gold_answer`",
        f"{ANSWERING} (worked_sums: every step, empty where no total is said)",
    ),
    "gold_answer": KnownFact(is_text, "text", "a right answer, the first where several are taken", EVERY),
    "exact": KnownFact(is_flag, "true or false", "whether the whole answer is right", ANSWERING),
    "graded_match": KnownFact(_is_share, "a number from 0 to 1", "how much of the answer is right", ANSWERING),
    "match_parts": KnownFact(
        _is_map_of(_is_share),
        "numbers from 0 to 1 by name",
        "how much of each thing that was asked for is right; what was not asked for is absent",
        ANSWERING,
    ),
    "calls": KnownFact(
        _is_list_of(_is_call),
        "a list of `{name, arguments}`",
        "the tool calls that were read out of the action, carried out or not; to answer or to buy is none",
        EVERY,
    ),
    "num_calls": KnownFact(is_count, "an integer from 0 upwards", "how many these are", EVERY),
    "gold_calls": KnownFact(
        _is_list_of(_is_call),
        "a list of `{name, arguments}`",
        "calls that do what is asked, in order; where there are turns, what the present one asks",
        EVERY,
    ),
    "gold_entities": KnownFact(
        _is_list_of(is_text),
        "a list of texts",
        "whom and what one comes across on the way to the answer, the answer included and what the question names not",
        "every step; in search_qa where the question names its documents",
    ),
    "entities": KnownFact(
        _is_list_of(is_text), "a list of texts", "those of `gold_entities` that the action names", "where these are"
    ),
    "documents": KnownFact(
        _is_list_of(is_text),
        "a list of texts",
        "titles of the documents that were shown, the best first",
        "steps that search",
    ),
    "gold_documents": KnownFact(
        _is_list_of(is_text),
        "a list of texts",
        "titles of the documents that lead to the answer, in order",
        "every step, where the question says so",
    ),
    "turn": KnownFact(is_count, "an integer from 0 upwards", "which of the user's requests the step belongs to", EVERY),
    "num_turns": KnownFact(is_count, "an integer from 0 upwards", "how many requests the task has", EVERY),
    "turns_passed": KnownFact(
        is_count, "an integer from 0 upwards", "how many turns have passed their checks by now", "steps that end a turn"
    ),
    "checks": KnownFact(
        _are_checks,
        "true or false by stage",
        "stages in order: `read` (the action could be read), `fits` (what it says is allowed here), `right` (it does "
        "what was asked); a stage that it did not come to, or that is not judged yet, is absent",
        EVERY,
    ),
    "expression": KnownFact(
        is_text, "text", "the expression that was read, with single spaces", "steps whose expression can be read"
    ),
    "lines_right": KnownFact(
        _is_list_of(is_flag), "a list of true or false", "whether each line of the answer is right by itself", EVERY
    ),
    "lines_on_track": KnownFact(
        _is_list_of(is_flag),
        "a list of true or false",
        "whether each line's result is what the numbers so far come to",
        EVERY,
    ),
    "line_ends": KnownFact(is_integers, "a list of integers", "words up to the end of each line", EVERY),
    "items": KnownFact(
        _is_list_of(is_text),
        "a list of texts",
        "what each item of a list names, in order; empty where it names nothing that was offered",
        EVERY,
    ),
    "item_relevance": KnownFact(
        is_integers, "a list of integers", "how relevant each item is; 0 where it is not offered or comes again", EVERY
    ),
    "items_exact": KnownFact(
        _is_list_of(is_flag),
        "a list of true or false",
        "whether each item, up to the last rank, is as relevant as the best list's at its rank",
        EVERY,
    ),
    "item_spans": KnownFact(
        _is_list_of(lambda span: is_integers(span) and len(span) == 2),
        "a list of pairs of integers",
        "where each item begins and ends in the action, in characters, the sign that ends it included",
        EVERY,
    ),
    "best_relevance": KnownFact(is_integers, "a list of integers", "relevance by rank of the best list", EVERY),
    "list_length": KnownFact(is_count, "an integer from 0 upwards", "how many items are asked for", EVERY),
}
"""Every fact that the environments of groupwise tell, by name."""
