"""Prompts: an instruction, the past that memory shows, what is seen now; as token ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from groupwise.core.parts import Part
from groupwise.rollout.frame import Frame
from groupwise.rollout.memory import Memory

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from groupwise.envs.environment import Observation


class PromptTemplate(Part):
    """How an observation is put to the model.

    The first text of a prompt is the instruction and the goal; each observation follows as the environment shows it.
    """

    show_instruction: bool = True
    """Whether prompts begin with the environment's one-line instruction."""
    show_goal: bool = True
    """Whether prompts say the goal after the instruction."""
    show_admissible: bool = False
    """Whether the current observation lists the possible actions."""
    thoughts: bool = False
    """Whether the model is asked to think first, between think tags, and to act between action tags."""

    def opening(self, instruction: str, goal: str) -> str:
        """What stands at the head of every prompt of an attempt."""
        parts = [instruction] if self.show_instruction else []
        parts += [f"Goal: {goal}"] if self.show_goal and goal else []
        if self.thoughts:
            parts.append("Think between <think> and </think>, then act between <action> and </action>.")
        return " ".join(parts)

    def observation(self, seen: Observation) -> str:
        """What the environment shows now."""
        if not (self.show_admissible and seen.admissible):
            return seen.text
        return f"{seen.text} Possible: {', '.join(seen.admissible)}."


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """A past step, as ids."""

    observation_ids: tuple[int, ...]
    """What was shown."""
    response_ids: tuple[int, ...]
    """What was sampled, exactly."""


class Prompter:
    """Puts prompts together for one run: one tokenizer, one template, one memory."""

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, *, template: PromptTemplate, memory: Memory, instruction: str
    ) -> None:
        self._tokenizer = tokenizer
        self._template = template
        self._memory = memory
        self._instruction = instruction
        self.frame = Frame.of(tokenizer)

    def opening_ids(self, goal: str) -> tuple[int, ...]:
        """The head of an attempt's prompts."""
        return (*self.frame.opening, *self.encode(self._template.opening(self._instruction, goal)))

    def observation_ids(self, seen: Observation) -> tuple[int, ...]:
        """An observation, encoded once."""
        return self.encode(self._template.observation(seen))

    def prompt(
        self, opening: tuple[int, ...], past: Sequence[Exchange], observation_ids: tuple[int, ...]
    ) -> tuple[int, ...]:
        """The prompt for the next response."""
        ids = list(opening)
        for exchange in past[self._memory.first_shown(len(past)) :]:
            ids += exchange.observation_ids
            ids += self.frame.before_response
            ids += exchange.response_ids
            if not exchange.response_ids or exchange.response_ids[-1] != self.frame.end_id:
                ids.append(self.frame.end_id)  # a response that was cut off is closed for it
            ids += self.frame.between
        return (*ids, *observation_ids, *self.frame.before_response)

    def text(self, response_ids: Sequence[int]) -> str:
        """What a response says, without its end token."""
        said = [token for token in response_ids if token != self.frame.end_id]
        return str(self._tokenizer.decode(said, skip_special_tokens=False)).strip()

    def encode(self, text: str) -> tuple[int, ...]:
        """Ids of a text, without special tokens."""
        return tuple(self._tokenizer(text, add_special_tokens=False).input_ids)
