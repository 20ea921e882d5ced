"""The prompt template of the published agents: one message a step, with the task, the last steps, what is possible."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from groupwise.core.parts.part import Part
from groupwise.envs.kit.words import vocabulary_of
from groupwise.rollout.prompts.prompter import PastStep

if TYPE_CHECKING:
    from groupwise.envs.environment import Observation

MAX_NUMBERED_STEPS = 50
"""Steps that a tokenizer made from scratch can number."""


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
        """What it says beside the environment's own words, for a tokenizer made from scratch."""
        empty = self._write_message([("", "")], num_past=1, text="", admissible=("",))
        return vocabulary_of(
            [self.write_opening("", ""), empty, *(str(number) for number in range(1, MAX_NUMBERED_STEPS + 1))]
        )

    def write_opening(self, instruction: str, goal: str, guidance_text: str = "") -> str:
        """Write the head of every prompt of an attempt; the template has an instruction of its own."""
        head = f"You act in {self.world}."
        head = f"{head} Your task: {goal}" if goal else head
        return f"{head}\n{guidance_text}" if guidance_text else head

    def write_observation(self, seen: Observation) -> str:
        """Write what the environment shows; the message says it."""
        return seen.text

    def write_step(self, past: Sequence[PastStep], seen: Observation, *, num_past: int) -> str:
        """Write the rest of a prompt: the past steps that memory shows, of `num_past` so far, and what is seen now."""
        return self._write_message(past, num_past=num_past, text=seen.text, admissible=seen.admissible)

    def _write_message(
        self, past: Sequence[PastStep], *, num_past: int, text: str, admissible: Sequence[str] | None
    ) -> str:
        lines = []
        if past:
            first = num_past - len(past) + 1
            lines.append(f"Steps taken: {num_past}. The last {len(past)}:")
            lines += [f"{n}. Seen: {seen} Done: {sent}" for n, (seen, sent) in enumerate(past, first)]
        lines.append(f"Now, at step {num_past + 1}, you see: {text}")
        if admissible:
            lines.append(f"Possible actions: {', '.join(admissible)}.")
        think = "Think first, between <think> and </think>. Then choose" if self.thoughts else "Choose"
        return "\n".join([*lines, f"{think} one action, and write it between <action> and </action>."])
