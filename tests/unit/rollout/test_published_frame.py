"""The published prompt frame: the task, the last steps, what is seen and possible, and the tags."""

from __future__ import annotations

from groupwise.envs.environment import Observation
from groupwise.envs.words import words
from groupwise.rollout.published_frame import PublishedFrame

SEEN = Observation(text="You arrive at desk 1.", admissible=("go to bed 1", "take mug 1 from desk 1"))
LIST = "Your admissible actions of the current situation are: ['go to bed 1'\n 'take mug 1 from desk 1'].\n\n"
REQUEST = (
    "Now it's your turn to take an action.\n"
    "You should first reason step-by-step about the current situation. This reasoning process MUST be enclosed within "
    "<think> </think> tags.\n"
    "Once you've finished your reasoning, you should choose an admissible action for current step and present it "
    "within <action> </action> tags."
)


def test_every_prompt_of_an_attempt_begins_with_the_task() -> None:
    head = PublishedFrame().opening("ignored", "put a mug in bed.")
    assert head == (
        "You are an expert agent operating in the ALFRED Embodied Environment. Your task is to: put a mug in bed."
    )
    assert PublishedFrame(world="a shop").opening("", "") == "You are an expert agent operating in a shop."
    assert PublishedFrame().opening("", "", "A hint.").endswith("Environment.\nA hint.")


def test_the_first_prompt_has_no_past() -> None:
    assert PublishedFrame().step([], SEEN, num_past=0) == (
        f"Your current observation is: You arrive at desk 1.\n{LIST}{REQUEST}"
    )


def test_later_prompts_tell_the_steps_that_memory_shows_by_their_numbers() -> None:
    told = [("You see a bed 1.", "look"), ("Nothing happens.", "go to desk 1")]
    assert PublishedFrame().step(told, SEEN, num_past=5) == (
        "Prior to this step, you have already taken 5 step(s). Below are the most recent 2 observations and the "
        "corresponding actions you took: [Observation 4: 'You see a bed 1.', Action 4: 'look'] "
        "[Observation 5: 'Nothing happens.', Action 5: 'go to desk 1']\n"
        f"You are now at step 6 and your current observation is: You arrive at desk 1.\n{LIST}{REQUEST}"
    )


def test_without_a_window_or_a_list_there_is_the_present_alone() -> None:
    bare = PublishedFrame(thoughts=False).step([], Observation(text="Fog."), num_past=3)
    assert bare == (
        "You are now at step 4 and your current observation is: Fog.\n\nNow it's your turn to take an action.\n"
        "You should choose an admissible action for current step and present it within <action> </action> tags."
    )


def test_its_words_are_all_it_says() -> None:
    frame = PublishedFrame()
    known = {word for text in frame.words() for word in words(text)}
    said = frame.opening("", "") + frame.step([("", "")] * 3, Observation(text="", admissible=("",)), num_past=12)
    assert set(words(said)) <= known
