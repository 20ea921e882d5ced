"""Every token of a prompt is attributed to where it comes from, and an attributed prompt is the prompt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

pytest.importorskip("torch")
from hypothesis import given
from hypothesis import strategies as st

from groupwise.envs.environment import Observation
from groupwise.models.tiny import make_word_tokenizer
from groupwise.rollout import AnchoredWindow, Full, PublishedTemplate, TemplateFile, Window
from groupwise.rollout.origins import attribute_prompt
from groupwise.rollout.prompts import Exchange, History, Prompter, PromptTemplate, Template
from tests.unit.rollout.byte_tokens import CHAT, byte_tokenizer, stretches

TEMPLATES: tuple[Template, ...] = (
    PromptTemplate(),
    PromptTemplate(show_goal=False, show_admissible="numbered", tell_past=True),
    PromptTemplate(show_instruction=False, show_admissible="yes", thoughts=True),
    PublishedTemplate(),
    PublishedTemplate(thoughts=False),
    TemplateFile(first="$task: $observation", later="$task: $history\n$observation [$admissible]"),
)
MEMORIES: tuple[History, ...] = (Full(), Window(steps=0), Window(steps=2), AnchoredWindow(low=0, high=1))


def make_prompter(
    template: Template, history: History, *, chat: str | None = None, system: str = "", **limit: Any
) -> Prompter:
    return Prompter(
        byte_tokenizer(chat), template=template, history=history, instruction="Do it.", system=system, **limit
    )


def play(made: Prompter, seen: Sequence[Observation]) -> list[Exchange]:
    said = "go <b>"
    return [
        made.make_exchange(shown, (*made.encode(said), made.frame.end_id)[: 7 - n], said)
        for n, shown in enumerate(seen)
    ]


TEXTS = st.text(alphabet="ab .,:\nGoal", max_size=12)
OBSERVATIONS = st.builds(
    lambda text, admissible: Observation(text=text, admissible=admissible),
    TEXTS,
    st.none() | st.lists(TEXTS, max_size=2).map(tuple),
)


@given(
    st.sampled_from(TEMPLATES),
    st.sampled_from(MEMORIES),
    st.sampled_from([None, CHAT]),
    st.sampled_from(["", "Be brief."]),
    st.lists(OBSERVATIONS, min_size=1, max_size=4),
    TEXTS,
    TEXTS,
    st.sampled_from([{}, {"over_limit": "cut_left"}, {"over_limit": "drop_oldest"}]),
)
def test_an_attributed_prompt_is_the_prompt_whatever_makes_it(
    template: Template,
    history: History,
    chat: str | None,
    system: str,
    seen: list[Observation],
    goal: str,
    hint: str,
    limit: dict[str, Any],
) -> None:
    made = make_prompter(template, history, chat=chat, system=system, max_tokens=120 if limit else None, **limit)
    past = play(made, seen[:-1])
    attributed = attribute_prompt(made, goal=goal, past=past, seen=seen[-1], hint_text=hint)
    assert attributed.ids == made.prompt(made.encode_opening(goal, hint), past, seen[-1])
    assert len(attributed.origins) == len(attributed.ids)


def test_a_dialogue_shows_who_says_what() -> None:
    made = make_prompter(PromptTemplate(show_admissible="numbered"), Full(), chat=CHAT, system="Be brief.")
    first = Observation(text="A door.", admissible=("open it",))
    past = [made.make_exchange(first, (*made.encode("1"), made.frame.end_id), "open it")]
    attributed = attribute_prompt(
        made, goal="Get out.", past=past, seen=Observation(text="A wall.", admissible=("turn",)), hint_text="Hurry."
    )
    assert stretches(made, *attributed) == [
        ("template", "[system] "),
        ("system", "Be brief."),
        ("template", " . [user] "),
        ("instruction", "Do it."),
        ("template", " "),
        ("hint", "Hurry."),
        ("template", " Goal: "),
        ("task", "Get out."),
        ("template", "\n"),
        ("history", "A door. Possible: 1 open it."),
        ("template", " . [assistant] "),
        ("history", "1</s>"),
        ("template", "[user] "),
        ("observation", "A wall."),
        ("template", " Possible: 1 "),
        ("observation", "turn"),
        ("template", ". . [assistant] "),
    ]


def test_a_single_message_tells_past_and_present_apart_though_they_say_the_same() -> None:
    made = make_prompter(PublishedTemplate(thoughts=False), Window(steps=1))
    seen = Observation(text="see", goal="see")
    attributed = attribute_prompt(made, goal="see", past=play(made, [seen, seen]), seen=seen)
    assert stretches(made, *attributed) == [
        ("template", "You act in a text home. Your task: "),
        ("task", "see"),
        ("template", "\nSteps taken: 2. The last 1:\n2. Seen: "),
        ("history", "see"),
        ("template", " Done: "),
        ("history", "go <b>"),
        ("template", "\nNow, at step 3, you see: "),
        ("observation", "see"),
        ("template", "\nChoose one action, and write it between <action> and </action>.>"),
    ]


def test_a_token_of_several_origins_has_that_of_its_first_letter() -> None:
    words = Prompter(
        make_word_tokenizer(["do", "it", "goal", ":", "out", "a", "wall", ">"]),
        template=PromptTemplate(),
        history=Full(),
        instruction="do it",
    )
    attributed = attribute_prompt(words, goal="out", past=[], seen=Observation(text="a wall"))
    assert [str(origin)[:4] for origin in attributed.origins] == [
        *("temp", "inst", "inst", "temp", "temp", "task", "obse", "obse", "temp")
    ]


def test_a_template_that_makes_something_of_marks_is_taken_for_the_author_of_all() -> None:
    class Shouting(PromptTemplate):
        def write_observation(self, seen: Observation) -> str:
            return f"{len(seen.text)} letters"

    made = make_prompter(Shouting(show_instruction=False), Full())
    attributed = attribute_prompt(made, goal="", past=[], seen=Observation(text="see"))
    assert stretches(made, *attributed) == [("template", "3 letters>")]
