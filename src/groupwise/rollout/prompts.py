"""Prompts as token ids: an instruction, the past steps that memory shows, and what the environment shows now."""

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
"""How many actions a tokenizer made from scratch can number."""
MAX_NUMBERED_STEPS = 50
"""Steps that a tokenizer made from scratch can number."""
KEPT_TEXTS = 4096
"""Texts whose ids are kept: the attempts of a group see the same ones."""

PastStep = tuple[str, str]
"""A past step in words: what was shown, and the action that was sent."""


class Template(Protocol):
    """Fills the slot `template`: what prompts say."""

    @property
    def is_one_message(self) -> bool:
        """Whether a prompt is a single message that tells the past, as `write_step` makes it; else it is a dialogue."""

    @property
    def asks_for_tags(self) -> bool:
        """Whether the model is asked to act between action tags."""

    def words(self) -> tuple[str, ...]:
        """What it says beside the environment's own words, for a tokenizer made from scratch."""

    def write_opening(self, instruction: str, goal: str, guidance_text: str = "") -> str:
        """Write what stands at the head of every prompt of an attempt."""

    def write_observation(self, seen: Observation) -> str:
        """Write what the environment shows now, as a turn of a dialogue."""

    def write_step(self, past: Sequence[PastStep], seen: Observation, *, num_past: int) -> str:
        """Write all of a single message after its opening."""


class PromptTemplate(Part, slot="template"):
    """A dialogue: each observation is a turn, and so is each response.

    The first text of a prompt is the instruction and the goal; each observation follows as the environment shows it.
    """

    is_one_message: ClassVar[bool] = False
    show_instruction: bool = True
    """Whether prompts begin with the environment's one-line instruction."""
    show_goal: bool = True
    """Whether prompts say the goal after the instruction."""
    show_admissible: Literal["no", "yes", "numbered"] = "no"
    """Whether observations list the possible actions, and whether with numbers to choose by."""
    tell_past: bool = False
    """Whether past steps are told in words: what was shown, without the list of actions, and the action that was sent.
    Otherwise they stand as they were, list and response, so that each prompt continues the one before."""
    thoughts: bool = False
    """Whether the model is asked to think first, between think tags, and to act between action tags."""

    @property
    def asks_for_tags(self) -> bool:
        return self.thoughts

    def words(self) -> tuple[str, ...]:
        return tuple(str(number) for number in range(1, MAX_NUMBERS + 1)) if self.show_admissible == "numbered" else ()

    def write_opening(self, instruction: str, goal: str, guidance_text: str = "") -> str:
        parts = [instruction] if self.show_instruction else []
        parts += [guidance_text] if guidance_text else []
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
"""A field of a run file that a template fills; a table without a kind is a `prompt_template`."""


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """A past step, as ids."""

    observation_ids: tuple[int, ...]
    response_ids: tuple[int, ...]
    """What was sampled, exactly, or the action in words."""
    in_words: PastStep


class Prompter:
    """Puts prompts together for one run: one tokenizer, one template, one memory.

    `instruct` gives the instruction of a task's own environment, where several are mixed.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        *,
        template: Template,
        memory: Memory,
        instruction: str,
        system: str = "",
        instruct: Callable[[Task], str] | None = None,
    ) -> None:
        self.tokenizer = tokenizer
        self.template = template
        self.memory = memory
        self.instruction = instruction
        self.system = system
        self._instruct = instruct
        self.encode = lru_cache(KEPT_TEXTS)(partial(_encode, tokenizer))
        """Ids of a text, without special tokens."""
        self._encode_seen = lru_cache(KEPT_TEXTS)(lambda seen: self.encode(template.write_observation(seen)))
        self._first_shown: dict[int, int] = {}
        self.frame = DialogueFrame.from_tokenizer(tokenizer, system=system)

    def copy(self) -> Prompter:
        """A prompter for another thread: a tokenizer serves one at a time."""
        return Prompter(
            copy.deepcopy(self.tokenizer),
            template=self.template,
            memory=self.memory,
            instruction=self.instruction,
            system=self.system,
            instruct=self._instruct,
        )

    def for_task(self, task: Task) -> Prompter:
        """The prompter of a task: this one, with the instruction of the task's own environment."""
        if self._instruct is None:
            return self
        twin = copy.copy(self)  # the same tokenizer, and the texts that it has read
        twin.instruction = self._instruct(task)
        return twin

    def encode_opening(self, goal: str, guidance_text: str = "") -> tuple[int, ...]:
        """Encode the head of an attempt's prompts, with guidance if there is some; a line break ends it."""
        opening = self.template.write_opening(self.instruction, goal, guidance_text)
        return (*self.frame.opening, *self.encode(f"{opening}\n" if opening else ""))

    def encode_observation(self, seen: Observation) -> tuple[int, ...]:
        """Encode an observation as a turn; nothing where prompts are single messages."""
        return () if self.template.is_one_message else self._encode_seen(seen)

    def make_exchange(self, seen: Observation, response: Sequence[int], action: str) -> Exchange:
        """Make a past step of what was seen, said and done, as later prompts show it."""
        return self.make_exchanges([(seen, response, action)])[0]

    def make_exchanges(self, steps: Iterable[tuple[Observation, Sequence[int], str]]) -> list[Exchange]:
        """Make past steps, each of what was seen, said and done."""
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
        """Make prompts, each of its opening, the past steps and what is seen now."""
        template, prompts = self.template, []
        before_response, between, end_id = self.frame.before_response, self.frame.between, self.frame.end_id
        is_one_message = template.is_one_message
        for opening, past, seen in asked:
            num_past = len(past)
            if num_past not in self._first_shown:
                self._first_shown[num_past] = self.memory.first_shown(num_past)
            shown = past[self._first_shown[num_past] :]
            if is_one_message:
                message = template.write_step([exchange.in_words for exchange in shown], seen, num_past=num_past)
                prompts.append((*opening, *self.encode(message), *before_response))
                continue
            ids = list(opening)
            for exchange in shown:
                ids += exchange.observation_ids + before_response + exchange.response_ids
                if not exchange.response_ids or exchange.response_ids[-1] != end_id:
                    ids.append(end_id)  # a response that was cut off is closed for it
                ids += between
            prompts.append((*ids, *self._encode_seen(seen), *before_response))
        return prompts

    def text(self, response_ids: Sequence[int]) -> str:
        """What a response says, without its end token."""
        return self.read_texts([response_ids])[0]

    def read_texts(self, responses: Iterable[Sequence[int]]) -> list[str]:
        """What responses say, without their end tokens."""
        end_id, decode, texts = self.frame.end_id, self.tokenizer.decode, []
        for response in responses:
            ids = list(response)
            if ids and ids[-1] == end_id:
                ids.pop()  # where it nearly always stands
            if end_id in ids:
                ids = [token for token in ids if token != end_id]
            texts.append(str(decode(ids, skip_special_tokens=False)).strip())
        return texts

    def pieces(self, response_ids: Sequence[int]) -> list[str]:
        """What each token says by itself, white space included; nothing where it is the end token."""
        return [
            "" if token == self.frame.end_id else str(self.tokenizer.decode([token], skip_special_tokens=False))
            for token in response_ids
        ]


# Memory: how much of an attempt's past its next prompt shows.


class Memory(Protocol):
    """Says which past steps a prompt shows."""

    def first_shown(self, num_past: int) -> int:
        """Index of the earliest past step that is shown, of `num_past` so far; all from there on are shown."""


class Window(Part, slot="memory"):
    """Show the last few steps; every prompt begins anew, so prompts of an attempt share little but their opening."""

    steps: Annotated[int, Field(ge=0)] = 2
    """How many past steps are shown."""

    def first_shown(self, num_past: int) -> int:
        return max(num_past - self.steps, 0)


class Full(Part, slot="memory"):
    """Show everything; each prompt continues the one before, so prefixes are shared as far as can be."""

    def first_shown(self, num_past: int) -> int:
        return 0


class AnchoredWindow(Part, slot="memory"):
    """Show between `low` and `high` past steps: the window grows to `high`, then is cut back to `low`.

    Between two cuts each prompt continues the one before, so that prefixes stay shared while prompts stay bounded.
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
        """Whole strides are left out, so that the beginning moves seldom."""
        if num_past <= self.high:
            return 0
        stride = self.high - self.low
        return -(-(num_past - self.high) // stride) * stride


MemorySlot = Annotated[Memory, Slot("memory")]


class PublishedTemplate(Part, slot="template"):
    """The prompt that GiGPO and HGPO put ALFWorld and WebShop in (Feng et al. 2025, arXiv:2505.10978, appendix).

    Every prompt is a single message: the task, how many steps were taken, the last of them as pairs of observation and
    action, the present observation, the admissible actions, and the request to think and act between tags. It needs the
    action rule `tagged`; how many pairs are told is the memory's, `window` with 2 in the papers.

    Choices: the order and the content are the paper's, the wording is ours. The first prompt states the task as the
    later ones do, so that all prompts of an attempt begin alike.
    """

    is_one_message: ClassVar[bool] = True
    """Past steps are told within the message, not as turns of a dialogue."""
    asks_for_tags: ClassVar[bool] = True
    """The action stands between tags."""
    world: str = "a text home"
    """What the agent is said to act in."""
    thoughts: bool = True
    """Whether the model is asked to think first, between think tags."""

    def words(self) -> tuple[str, ...]:
        from groupwise.envs.environment import Observation

        empty = self.write_step([("", "")], Observation(text="", admissible=("",)), num_past=1)
        numbers = [str(number) for number in range(1, MAX_NUMBERED_STEPS + 1)]
        return vocabulary_of([self.write_opening("", ""), empty, *numbers])

    def write_opening(self, instruction: str, goal: str, guidance_text: str = "") -> str:
        head = f"You act in {self.world}."
        head = f"{head} Your task: {goal}" if goal else head
        return f"{head}\n{guidance_text}" if guidance_text else head

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


# The frame of a dialogue: the token ids that stand before the first observation, and between the turns.
#
# Prompts are put together from pieces of ids: each observation is encoded once, each response is the ids that were
# sampled. Nothing sampled is ever decoded and encoded again, so the learner sees exactly what the sampler saw.

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

        The system prompt is a system message of the template, or a first line of plain text; empty = none but what the
        template says by itself.
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
        # A template may end turns with a special token that is not the tokenizer's end of sequence (Gemma, Phi): the
        # model then says that one, and would never stop at the other.
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


def _find_end_of_sequence(tokenizer: Any) -> int:
    end_id = tokenizer.eos_token_id
    if not isinstance(end_id, int):
        raise ConfigError("the tokenizer has no end token; set `eos_token`, which ends every response")
    return end_id


def _encode(tokenizer: Any, text: str) -> tuple[int, ...]:
    return tuple(tokenizer(text, add_special_tokens=False).input_ids)
