"""The frame of a dialogue: the token ids that stand before the first observation, and between the turns.

Prompts are put together from pieces of ids: each observation is encoded once, each response is the ids that were
sampled. Nothing sampled is ever decoded and encoded again, so the learner sees exactly what the sampler saw.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from groupwise.core.errors import ConfigError
from groupwise.core.text.safe_text import quote_line

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_FIRST, _ANSWER, _SECOND = "\u2402first\u2403", "\u2402answer\u2403", "\u2402second\u2403"


@dataclass(frozen=True, kw_only=True)
class DialogueFrame:
    """The token ids around the turns of a dialogue.

    Worked example (ChatML): opening `<|im_start|>user\\n`, before_response `<|im_end|>\\n<|im_start|>assistant\\n`,
    between `\\n<|im_start|>user\\n`; the response itself ends with the sampled `<|im_end|>`.
    """

    opening: tuple[int, ...]
    """Before the first observation."""
    before_response: tuple[int, ...]
    """Between an observation and the response to it."""
    between: tuple[int, ...]
    """Between a response, with its end token, and the next observation."""
    end_id: int
    """The token that ends a response."""
    opening_text: str = ""
    """What `opening` says; a start token that no text stands for comes before it."""

    @classmethod
    def from_tokenizer(cls, tokenizer: PreTrainedTokenizerBase, *, system: str = "") -> DialogueFrame:
        """Read the frame off a tokenizer's chat template; plain text where it has none.

        Args:
            tokenizer: Whose template.
            system: The system prompt: a system message of the template, or a first line of plain text; empty = none but
                what the template says by itself.
        """
        if not tokenizer.chat_template:
            start = () if tokenizer.bos_token_id is None else (tokenizer.bos_token_id,)
            opening_text = f"{system}\n" if system else ""
            return cls(
                opening=(*start, *_encode(tokenizer, opening_text)),
                opening_text=opening_text,
                before_response=_encode(tokenizer, ">"),
                between=(),
                end_id=_find_end_of_sequence(tokenizer),
            )
        opening, before_response, between = _read_chat_template(tokenizer, system)
        end_id, rest = _find_end_of_turn(tokenizer, between)
        return cls(
            opening=_encode(tokenizer, opening),
            opening_text=opening,
            before_response=_encode(tokenizer, before_response),
            between=rest,
            end_id=end_id,
        )


def _read_chat_template(tokenizer: Any, system: str) -> tuple[str, str, str]:
    """Draw a dialogue of two observations and read off what stands around them."""
    from jinja2 import TemplateError  # which transformers writes chat templates with

    turns = [{"role": "system", "content": system}] if system else []
    turns += [
        {"role": "user", "content": _FIRST},
        {"role": "assistant", "content": _ANSWER},
        {"role": "user", "content": _SECOND},
    ]
    try:
        text = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    except TemplateError as error:
        asked = "a system message" if system else "a dialogue"
        remedy = "leave out rollout.system" if system else "use another template"
        raise ConfigError(f"the chat template refuses {asked} ({quote_line(str(error))}); {remedy}") from None
    opening, first, rest = text.partition(_FIRST)
    before_answer, answer, rest = rest.partition(_ANSWER)
    between, second, before_response = rest.partition(_SECOND)
    if not (first and answer and second):
        raise ConfigError("the chat template changes or drops what is said in it; use a template that keeps its turns")
    if system.strip() not in opening:
        raise ConfigError("the chat template drops or changes the system message; leave out rollout.system")
    if before_answer != before_response:
        raise ConfigError(
            "the chat template opens a past answer differently from a new one, so a prompt would not continue the one "
            "before; use a template that treats them alike"
        )
    return opening, before_response, between


def _find_end_of_turn(tokenizer: Any, between: str) -> tuple[int, tuple[int, ...]]:
    """Find the token that ends a response, and what follows it before the next observation.

    A template may end turns with a special token that is not the tokenizer's end of sequence (Gemma, Phi): the model
    then says that one, and would never stop at the other.
    """
    ids = _encode(tokenizer, between)
    special = {number for number, token in tokenizer.added_tokens_decoder.items() if token.special}
    if ids and ids[0] in special.union(tokenizer.all_special_ids):
        return ids[0], ids[1:]
    return _find_end_of_sequence(tokenizer), ids


def _find_end_of_sequence(tokenizer: Any) -> int:
    end_id = tokenizer.eos_token_id
    if not isinstance(end_id, int):
        raise ConfigError("the tokenizer has no end token; set `eos_token`, which ends every response")
    return end_id


def _encode(tokenizer: Any, text: str) -> tuple[int, ...]:
    return tuple(tokenizer(text, add_special_tokens=False).input_ids)
