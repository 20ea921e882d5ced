"""The prompt frame of the published agents: one message a step, with the task, the last steps and what is possible."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from groupwise.core.parts import Part

if TYPE_CHECKING:
    from groupwise.envs.environment import Observation

Told = tuple[str, str]
"""A past step in words: what was shown, and the action that was sent."""


class PublishedFrame(Part):
    """The frame that GiGPO and HGPO put ALFWorld in (Feng et al. 2025, arXiv:2505.10978, appendix).

    Every prompt is a single message: the task, how many steps were taken, the last of them as pairs of observation and
    action, the present observation, the admissible actions, and the request to think and act between tags. It needs the
    action rule `tagged`; how many pairs are told is the memory's, `window` with 2 in the papers.

    Choices: the first prompt states the task as the later ones do, where the release's shows the game's introduction
    with the task in it; so all prompts of an attempt begin alike. Actions are in quotes, one a line, as in the release.
    """

    is_one_message: ClassVar[bool] = True
    """Whether past steps are told within the message, not as turns of a dialogue."""
    world: str = "the ALFRED Embodied Environment"
    """What the agent is said to operate in."""
    thoughts: bool = True
    """Whether the model is asked to think first, between think tags."""

    def words(self) -> tuple[str, ...]:
        """What it says beside the environment's own words, for a tokenizer made from scratch."""
        empty = self.message([("", "")], num_past=1, text="", admissible=("",))
        return (self.opening("", ""), empty, *(str(number) for number in range(1, 51)))

    def opening(self, instruction: str, goal: str, help_text: str = "") -> str:
        """What stands at the head of every prompt of an attempt; the frame has an instruction of its own."""
        head = f"You are an expert agent operating in {self.world}."
        head = f"{head} Your task is to: {goal}" if goal else head
        return f"{head}\n{help_text}" if help_text else head

    def step(self, past: Sequence[Told], seen: Observation, *, num_past: int) -> str:
        """The rest of a prompt: the past steps that memory shows, of `num_past` so far, and what is seen now."""
        return self.message(past, num_past=num_past, text=seen.text, admissible=seen.admissible)

    def message(self, past: Sequence[Told], *, num_past: int, text: str, admissible: Sequence[str] | None) -> str:
        """The rest of a prompt, from its pieces."""
        lines = []
        if past:
            first = num_past - len(past) + 1
            told = [f"[Observation {n}: '{seen}', Action {n}: '{sent}']" for n, (seen, sent) in enumerate(past, first)]
            lines.append(
                f"Prior to this step, you have already taken {num_past} step(s). Below are the most recent {len(past)} "
                f"observations and the corresponding actions you took: {' '.join(told)}"
            )
        now = f"You are now at step {num_past + 1} and your" if num_past else "Your"
        lines.append(f"{now} current observation is: {text}")
        if admissible:
            quoted = "\n ".join(f"'{action}'" for action in admissible)
            lines.append(f"Your admissible actions of the current situation are: [{quoted}].")
        return "\n".join([*lines, "", *self._request()])

    def _request(self) -> tuple[str, ...]:
        reason = (
            "You should first reason step-by-step about the current situation. This reasoning process MUST be enclosed "
            "within <think> </think> tags.",
        )
        choose = "choose an admissible action for current step and present it within <action> </action> tags."
        end = f"Once you've finished your reasoning, you should {choose}" if self.thoughts else f"You should {choose}"
        return ("Now it's your turn to take an action.", *(reason if self.thoughts else ()), end)
