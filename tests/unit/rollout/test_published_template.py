"""The published prompt frame: the task, the last steps, what is seen and possible, and the tags."""

from __future__ import annotations

import pytest

from groupwise.envs.environment import Observation
from groupwise.envs.kit.words import split_words
from groupwise.models.tiny import make_word_tokenizer
from groupwise.rollout import Window
from groupwise.rollout.prompts import Prompter, PublishedTemplate
from groupwise.system.errors import ConfigError
from groupwise.training.config.run_config import RolloutConfig

SEEN = Observation(text="You arrive at desk 1.", admissible=("go to bed 1", "take mug 1 from desk 1"))
LIST = "Possible actions: go to bed 1, take mug 1 from desk 1.\n"
REQUEST = (
    "Think first, between <think> and </think>. Then choose one action, and write it between <action> and </action>."
)


def test_every_prompt_of_an_rollout_begins_with_the_task() -> None:
    head = PublishedTemplate().write_opening("ignored", "put a mug in bed.")
    assert head == "You act in a text home. Your task: put a mug in bed."
    assert PublishedTemplate(world="a shop").write_opening("", "") == "You act in a shop."
    assert PublishedTemplate().write_opening("", "", "A hint.") == "You act in a text home.\nA hint."


def test_the_first_prompt_has_no_past() -> None:
    assert PublishedTemplate().write_step([], SEEN, num_past=0) == (
        f"Now, at step 1, you see: You arrive at desk 1.\n{LIST}{REQUEST}"
    )


def test_later_prompts_tell_the_steps_that_memory_shows_by_their_numbers() -> None:
    past_steps = [("You see a bed 1.", "look"), ("Nothing happens.", "go to desk 1")]
    assert PublishedTemplate().write_step(past_steps, SEEN, num_past=5) == (
        "Steps taken: 5. The last 2:\n4. Seen: You see a bed 1. Done: look\n5. Seen: Nothing happens. Done: go to "
        f"desk 1\nNow, at step 6, you see: You arrive at desk 1.\n{LIST}{REQUEST}"
    )


def test_without_thoughts_or_a_list_there_is_the_present_alone() -> None:
    bare = PublishedTemplate(thoughts=False).write_step([], Observation(text="Fog."), num_past=3)
    assert bare == ("Now, at step 4, you see: Fog.\nChoose one action, and write it between <action> and </action>.")


def test_its_words_are_all_it_says() -> None:
    template = PublishedTemplate()
    known = {word for text in template.words() for word in split_words(text)}
    said = template.write_opening("", "") + template.write_step(
        [("", "")] * 3, Observation(text="", admissible=("",)), num_past=12
    )
    assert set(split_words(said)) <= known


def test_a_prompt_is_one_message_that_tells_the_steps_in_the_window() -> None:
    template = PublishedTemplate(thoughts=False)
    known = sorted({word for text in (*template.words(), "fog mud look walk put") for word in split_words(text)})
    made = Prompter(make_word_tokenizer(known), template=template, history=Window(steps=1), instruction="")
    past = [
        made.make_exchange(Observation(text="fog"), made.encode("look"), "look"),
        made.make_exchange(Observation(text="mud"), made.encode("walk"), "walk"),
    ]
    opening = made.encode_opening("put")
    prompt = made.prompt(opening, past, Observation(text="fog"))
    message = made.encode(template.write_step([("mud", "walk")], Observation(text="fog"), num_past=2))
    assert prompt == (*opening.ids, *message, *made.frame.before_response)
    assert made.encode_observation(Observation(text="fog")) == ()


def test_it_needs_the_rule_that_reads_tags() -> None:
    assert (
        RolloutConfig(template={"kind": "published_template"}, action_parser="tagged").template == PublishedTemplate()
    )
    with pytest.raises(ConfigError, match="need each other; set both or neither"):
        RolloutConfig(template="published_template")
