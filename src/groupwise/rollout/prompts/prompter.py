"""Prompts as token ids: an instruction, the past steps that memory shows, and what the environment shows now."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Protocol

from groupwise.core.parts.part import Part, Slot
from groupwise.rollout.prompts.dialogue_frame import DialogueFrame
from groupwise.rollout.prompts.memory import Memory

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from groupwise.core.records import Task
    from groupwise.envs.environment import Observation

MAX_NUMBERS = 40
"""How many actions a tokenizer made from scratch can number."""


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
        """Only together with thoughts."""
        return self.thoughts

    def words(self) -> tuple[str, ...]:
        """What it says beside the environment's own words, for a tokenizer made from scratch."""
        return tuple(str(number) for number in range(1, MAX_NUMBERS + 1)) if self.show_admissible == "numbered" else ()

    def write_opening(self, instruction: str, goal: str, guidance_text: str = "") -> str:
        """Write what stands at the head of every prompt of an attempt."""
        parts = [instruction] if self.show_instruction else []
        parts += [guidance_text] if guidance_text else []
        parts += [f"Goal: {goal}"] if self.show_goal and goal else []
        if self.thoughts:
            parts.append("Think between <think> and </think>, then act between <action> and </action>.")
        return " ".join(parts)

    def write_observation(self, seen: Observation) -> str:
        """Write what the environment shows now."""
        if self.show_admissible == "no" or not seen.admissible:
            return seen.text
        listed = seen.admissible
        if self.show_admissible == "numbered":
            listed = tuple(f"{number} {action}" for number, action in enumerate(listed, start=1))
        return f"{seen.text} Possible: {', '.join(listed)}."

    def write_step(self, past: Sequence[PastStep], seen: Observation, *, num_past: int) -> str:
        """A dialogue has turns instead."""
        raise NotImplementedError("a dialogue is put together from its turns")


TemplateSlot = Annotated[Template, Slot("template")]
"""A field of a run file that a template fills; a table without a kind is a `prompt_template`."""

KEPT_TEXTS = 4096
"""Texts whose ids are kept: the attempts of a group see the same ones."""


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """A past step, as ids."""

    observation_ids: tuple[int, ...]
    """What was shown."""
    response_ids: tuple[int, ...]
    """What was sampled, exactly, or the action in words."""
    in_words: PastStep
    """The step in words."""


class Prompter:
    """Puts prompts together for one run: one tokenizer, one template, one memory."""

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
        """Make a prompter.

        Args:
            tokenizer: the model's.
            template: how observations are put to the model.
            memory: how much of the past prompts show.
            instruction: the environment's line.
            system: the run's system prompt.
            instruct: the line of a task's own environment, where several are mixed; None = there is one.
        """
        self.tokenizer = tokenizer
        self.template = template
        self.memory = memory
        self.instruction = instruction
        self.system = system
        self._instruct = instruct
        self._ids_of = lru_cache(KEPT_TEXTS)(self._tokenize)
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

    def make_exchange(self, seen: Observation, response: Sequence[int], action: str) -> Exchange:
        """Make a past step of what was seen, said and done, as later prompts show it."""
        in_words = (seen.text, action)
        if isinstance(self.template, PromptTemplate) and self.template.tell_past:
            response = (*self.encode(action), self.frame.end_id)
            return Exchange(observation_ids=self.encode(seen.text), response_ids=response, in_words=in_words)
        return Exchange(observation_ids=self.encode_observation(seen), response_ids=tuple(response), in_words=in_words)

    def encode_observation(self, seen: Observation) -> tuple[int, ...]:
        """Encode an observation as a turn; nothing where prompts are single messages."""
        return () if self.template.is_one_message else self.encode(self.template.write_observation(seen))

    def prompt(self, opening: tuple[int, ...], past: Sequence[Exchange], seen: Observation) -> tuple[int, ...]:
        """Make the prompt for the next response."""
        shown = past[self.memory.first_shown(len(past)) :]
        if self.template.is_one_message:
            message = self.template.write_step([exchange.in_words for exchange in shown], seen, num_past=len(past))
            return (*opening, *self.encode(message), *self.frame.before_response)
        ids = list(opening)
        for exchange in shown:
            ids += exchange.observation_ids
            ids += self.frame.before_response
            ids += exchange.response_ids
            if not exchange.response_ids or exchange.response_ids[-1] != self.frame.end_id:
                ids.append(self.frame.end_id)  # a response that was cut off is closed for it
            ids += self.frame.between
        return (*ids, *self.encode_observation(seen), *self.frame.before_response)

    def text(self, response_ids: Sequence[int]) -> str:
        """What a response says, without its end token."""
        without_end = [token for token in response_ids if token != self.frame.end_id]
        return str(self.tokenizer.decode(without_end, skip_special_tokens=False)).strip()

    def pieces(self, response_ids: Sequence[int]) -> list[str]:
        """What each token says by itself, white space included; nothing where it is the end token."""
        return [
            "" if token == self.frame.end_id else str(self.tokenizer.decode([token], skip_special_tokens=False))
            for token in response_ids
        ]

    def encode(self, text: str) -> tuple[int, ...]:
        """Ids of a text, without special tokens."""
        return self._ids_of(text)

    def _tokenize(self, text: str) -> tuple[int, ...]:
        return tuple(self.tokenizer(text, add_special_tokens=False).input_ids)
