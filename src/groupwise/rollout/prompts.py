"""Prompts as token ids: an instruction, the history in the prompt, and the current observation."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Protocol

from pydantic import Field, model_validator

from groupwise.envs.kit.words import vocabulary_of
from groupwise.parts.part import Part, Slot
from groupwise.system.errors import ConfigError
from groupwise.system.text import quote_line

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from groupwise.data.records import Task
    from groupwise.envs.environment import Observation

MAX_NUMBERS = 40
"""Numbers of actions in the vocabulary of a tokenizer made from scratch."""
MAX_NUMBERED_STEPS = 50
"""Numbers of steps in the vocabulary of a tokenizer made from scratch."""
KEPT_TEXTS = 4096
"""Size of the cache of encoded texts; the rollouts of a group have the same observations."""

PastStep = tuple[str, str]
"""A past step as text: the observation, and the action that was sent."""


class Template(Protocol):
    """Fills the slot `template`: the text of prompts."""

    @property
    def is_one_message(self) -> bool:
        """Whether a prompt is a single message with the past steps, from `write_step`; else it is a dialogue."""

    @property
    def asks_for_tags(self) -> bool:
        """Whether the prompt asks for an action between action tags."""

    def words(self) -> tuple[str, ...]:
        """Its words beside those of the environment, for a tokenizer made from scratch."""

    def write_opening(self, instruction: str, goal: str, hint_text: str = "") -> str:
        """Write the beginning of every prompt of a rollout."""

    def write_observation(self, seen: Observation) -> str:
        """Write the current observation, as a turn of a dialogue."""

    def write_step(self, past: Sequence[PastStep], seen: Observation, *, num_past: int) -> str:
        """Write all of a single message after its opening."""


class PromptTemplate(Part, slot="template"):
    """A dialogue: each observation is a turn, and so is each response.

    A prompt begins with the instruction and the goal. The observations follow as the environment gives them.
    """

    is_one_message: ClassVar[bool] = False
    show_instruction: bool = True
    """Whether prompts begin with the environment's one-line instruction."""
    show_goal: bool = True
    """Whether prompts give the goal after the instruction."""
    show_admissible: Literal["no", "yes", "numbered"] = "no"
    """Whether observations list the possible actions, and whether these are numbered."""
    tell_past: bool = False
    """Whether past steps are shown as the observation without the list of actions, and the action that was sent. If
    not, they stay as they were, with list and response, and each prompt continues the previous one."""
    thoughts: bool = False
    """Whether prompts ask for thoughts between think tags, then for an action between action tags."""

    @property
    def asks_for_tags(self) -> bool:
        return self.thoughts

    def words(self) -> tuple[str, ...]:
        return tuple(str(number) for number in range(1, MAX_NUMBERS + 1)) if self.show_admissible == "numbered" else ()

    def write_opening(self, instruction: str, goal: str, hint_text: str = "") -> str:
        parts = [instruction] if self.show_instruction else []
        parts += [hint_text] if hint_text else []
        parts += [f"Goal: {goal}"] if self.show_goal and goal else []
        if self.thoughts:
            parts.append("Think between <think> and </think>, then act between <action> and </action>.")
        return " ".join(parts)

    def write_observation(self, seen: Observation) -> str:
        if self.show_admissible == "no" or not seen.admissible:
            return seen.text
        listed = seen.admissible
        if self.show_admissible == "numbered":
            listed = tuple(f"{number} {action}" for number, action in enumerate(listed, start=1))
        return f"{seen.text} Possible: {', '.join(listed)}."

    def write_step(self, past: Sequence[PastStep], seen: Observation, *, num_past: int) -> str:
        raise NotImplementedError("a dialogue is put together from its turns")


TemplateSlot = Annotated[Template, Slot("template")]
"""A run-file field for a template; a table without a kind is a `prompt_template`."""


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """A past step as token ids."""

    observation_ids: tuple[int, ...]
    response_ids: tuple[int, ...]
    """The exact sampled ids, or the action as ids."""
    in_words: PastStep


class Prompter:
    """Makes the prompts of one run.

    `instruct` gives the instruction of a task's environment, if several are mixed.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        *,
        template: Template,
        history: History,
        instruction: str,
        system: str = "",
        instruct: Callable[[Task], str] | None = None,
    ) -> None:
        self.tokenizer = tokenizer
        self.template = template
        self.history = history
        self.instruction = instruction
        self.system = system
        self._instruct = instruct
        self.encode = lru_cache(KEPT_TEXTS)(partial(_encode, tokenizer))
        """Ids of a text, without special tokens."""
        self._encode_seen = lru_cache(KEPT_TEXTS)(lambda seen: self.encode(template.write_observation(seen)))
        self._first_shown: dict[int, int] = {}
        self.frame = DialogueFrame.from_tokenizer(tokenizer, system=system)

    def copy(self) -> Prompter:
        """A prompter for another thread, because a tokenizer is not thread-safe."""
        return Prompter(
            copy.deepcopy(self.tokenizer),
            template=self.template,
            history=self.history,
            instruction=self.instruction,
            system=self.system,
            instruct=self._instruct,
        )

    def for_task(self, task: Task) -> Prompter:
        """This prompter, with the instruction of the task's environment."""
        if self._instruct is None:
            return self
        twin = copy.copy(self)  # shares the tokenizer and the cache of encoded texts
        twin.instruction = self._instruct(task)
        return twin

    def encode_opening(self, goal: str, hint_text: str = "") -> tuple[int, ...]:
        """Encode the beginning of a rollout's prompts, with the hint if there is one; a line break ends it."""
        opening = self.template.write_opening(self.instruction, goal, hint_text)
        return (*self.frame.opening, *self.encode(f"{opening}\n" if opening else ""))

    def encode_observation(self, seen: Observation) -> tuple[int, ...]:
        """Encode an observation as a turn; empty if prompts are single messages."""
        return () if self.template.is_one_message else self._encode_seen(seen)

    def make_exchange(self, seen: Observation, response: Sequence[int], action: str) -> Exchange:
        """A past step as later prompts show it, from observation, response and action."""
        return self.make_exchanges([(seen, response, action)])[0]

    def make_exchanges(self, steps: Iterable[tuple[Observation, Sequence[int], str]]) -> list[Exchange]:
        """Past steps as later prompts show them, from observations, responses and actions."""
        template, end_id, exchanges = self.template, self.frame.end_id, []
        tells_past = isinstance(template, PromptTemplate) and template.tell_past
        is_one_message = template.is_one_message
        for seen, response, action in steps:
            if tells_past:
                shown, response = self.encode(seen.text), (*self.encode(action), end_id)
            else:
                shown = () if is_one_message else self._encode_seen(seen)
            in_words = (seen.text, action)
            exchanges.append(Exchange(observation_ids=shown, response_ids=tuple(response), in_words=in_words))
        return exchanges

    def prompt(self, opening: tuple[int, ...], past: Sequence[Exchange], seen: Observation) -> tuple[int, ...]:
        """Make the prompt for the next response."""
        return self.make_prompts([(opening, past, seen)])[0]

    def make_prompts(
        self, asked: Iterable[tuple[tuple[int, ...], Sequence[Exchange], Observation]]
    ) -> list[tuple[int, ...]]:
        """Make prompts, each from its opening, the past steps and the current observation."""
        template, prompts = self.template, []
        before_response, between, end_id = self.frame.before_response, self.frame.between, self.frame.end_id
        is_one_message = template.is_one_message
        for opening, past, seen in asked:
            num_past = len(past)
            if num_past not in self._first_shown:
                self._first_shown[num_past] = self.history.first_shown(num_past)
            shown = past[self._first_shown[num_past] :]
            if is_one_message:
                message = template.write_step([exchange.in_words for exchange in shown], seen, num_past=num_past)
                prompts.append((*opening, *self.encode(message), *before_response))
                continue
            ids = list(opening)
            for exchange in shown:
                ids += exchange.observation_ids + before_response + exchange.response_ids
                if not exchange.response_ids or exchange.response_ids[-1] != end_id:
                    ids.append(end_id)  # also after a response that was cut off
                ids += between
            prompts.append((*ids, *self._encode_seen(seen), *before_response))
        return prompts

    def text(self, response_ids: Sequence[int]) -> str:
        """The text of a response, without its end token."""
        return self.read_texts([response_ids])[0]

    def read_texts(self, responses: Iterable[Sequence[int]]) -> list[str]:
        """The texts of responses, without their end tokens."""
        end_id, decode, texts = self.frame.end_id, self.tokenizer.decode, []
        for response in responses:
            ids = list(response)
            if ids and ids[-1] == end_id:
                ids.pop()  # nearly always its only place
            if end_id in ids:
                ids = [token for token in ids if token != end_id]
            texts.append(str(decode(ids, skip_special_tokens=False)).strip())
        return texts

    def pieces(self, response_ids: Sequence[int]) -> list[str]:
        """The text of each token, with white space; empty for the end token."""
        return [
            "" if token == self.frame.end_id else str(self.tokenizer.decode([token], skip_special_tokens=False))
            for token in response_ids
        ]


# The history in the prompt: how many past steps of a rollout its next prompt shows.


class History(Protocol):
    """Chooses the past steps that a prompt shows."""

    def first_shown(self, num_past: int) -> int:
        """Index of the first of `num_past` past steps that is shown; all later ones are shown too."""


class Window(Part, slot="history"):
    """Show the last few steps. Prompts of a rollout share little more than their opening."""

    steps: Annotated[int, Field(ge=0)] = 2
    """How many past steps are shown."""

    def first_shown(self, num_past: int) -> int:
        return max(num_past - self.steps, 0)


class Full(Part, slot="history"):
    """Show all past steps. Each prompt continues the previous one, so prefixes are shared as much as possible."""

    def first_shown(self, num_past: int) -> int:
        return 0


class AnchoredWindow(Part, slot="history"):
    """Show between `low` and `high` past steps: the window grows to `high`, then is cut to `low`.

    Between two cuts each prompt continues the previous one. So prefixes are shared, and prompts stay bounded.
    """

    low: Annotated[int, Field(ge=0)] = 2
    """How many past steps are shown right after a cut."""
    high: Annotated[int, Field(ge=1)] = 6
    """How many past steps are shown at most."""

    @model_validator(mode="after")
    def _grows(self) -> AnchoredWindow:
        if self.high <= self.low:
            raise ValueError(f"high is {self.high} but must exceed low, {self.low}; the window has to grow")
        return self

    def first_shown(self, num_past: int) -> int:
        """Whole strides are left out, so the beginning moves rarely."""
        if num_past <= self.high:
            return 0
        stride = self.high - self.low
        return -(-(num_past - self.high) // stride) * stride


HistorySlot = Annotated[History, Slot("history")]


class PublishedTemplate(Part, slot="template"):
    """The prompt that GiGPO and HGPO put ALFWorld and WebShop in (Feng et al. 2025, arXiv:2505.10978, appendix).

    Every prompt is a single message: the task, the number of steps taken, the last steps as pairs of observation and
    action, the current observation, the admissible actions, and the request to think and act between tags. It needs
    the action parser `tagged`. The number of pairs is set by the history in the prompt: `window` with 2 in the papers.

    Choices: order and content are the paper's; the wording is ours. The first prompt states the task as later ones do,
    so all prompts of a rollout begin alike.
    """

    is_one_message: ClassVar[bool] = True
    """Past steps are part of the message, not turns of a dialogue."""
    asks_for_tags: ClassVar[bool] = True
    """The action is between tags."""
    world: str = "a text home"
    """The words for the environment in the prompt."""
    thoughts: bool = True
    """Whether prompts ask for thoughts first, between think tags."""

    def words(self) -> tuple[str, ...]:
        from groupwise.envs.environment import Observation

        empty = self.write_step([("", "")], Observation(text="", admissible=("",)), num_past=1)
        numbers = [str(number) for number in range(1, MAX_NUMBERED_STEPS + 1)]
        return vocabulary_of([self.write_opening("", ""), empty, *numbers])

    def write_opening(self, instruction: str, goal: str, hint_text: str = "") -> str:
        head = f"You act in {self.world}."
        head = f"{head} Your task: {goal}" if goal else head
        return f"{head}\n{hint_text}" if hint_text else head

    def write_observation(self, seen: Observation) -> str:
        return seen.text

    def write_step(self, past: Sequence[PastStep], seen: Observation, *, num_past: int) -> str:
        lines = []
        if past:
            first = num_past - len(past) + 1
            lines.append(f"Steps taken: {num_past}. The last {len(past)}:")
            lines += [f"{n}. Seen: {shown} Done: {sent}" for n, (shown, sent) in enumerate(past, first)]
        lines.append(f"Now, at step {num_past + 1}, you see: {seen.text}")
        if seen.admissible:
            lines.append(f"Possible actions: {', '.join(seen.admissible)}.")
        think = "Think first, between <think> and </think>. Then choose" if self.thoughts else "Choose"
        return "\n".join([*lines, f"{think} one action, and write it between <action> and </action>."])


# The frame of a dialogue: the token ids before the first observation, and between the turns.
#
# Prompts are put together from token ids: each observation is encoded once, each response is the sampled ids. Sampled
# tokens are never decoded and encoded again, so the learner sees exactly what the engine saw.

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
    """The text of `opening`, without a start token that has no text."""

    @classmethod
    def from_tokenizer(cls, tokenizer: PreTrainedTokenizerBase, *, system: str = "") -> DialogueFrame:
        """Read the frame from a tokenizer's chat template; plain text if it has none.

        The system prompt is a system message of the template, or a first line of plain text. Empty = only what the
        template adds itself.
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
        # A template may end turns with a special token that is not the tokenizer's end of sequence (Gemma, Phi). Then
        # the model ends a response with that token.
        ids = _encode(tokenizer, between)
        special = {number for number, token in tokenizer.added_tokens_decoder.items() if token.special}
        ends_turn = bool(ids) and ids[0] in special.union(tokenizer.all_special_ids)
        return cls(
            opening=_encode(tokenizer, opening),
            opening_text=opening,
            before_response=_encode(tokenizer, before_response),
            between=ids[1:] if ends_turn else ids,
            end_id=ids[0] if ends_turn else _find_end_of_sequence(tokenizer),
        )


def _read_chat_template(tokenizer: Any, system: str) -> tuple[str, str, str]:
    """Write a dialogue of two observations with the template, and read the text around them."""
    from jinja2 import TemplateError  # the template engine of transformers

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


def _find_end_of_sequence(tokenizer: Any) -> int:
    end_id = tokenizer.eos_token_id
    if not isinstance(end_id, int):
        raise ConfigError("the tokenizer has no end token; set `eos_token`, which ends every response")
    return end_id


def _encode(tokenizer: Any, text: str) -> tuple[int, ...]:
    return tuple(tokenizer(text, add_special_tokens=False).input_ids)
