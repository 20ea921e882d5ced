"""Chat templates that open a thought before a new answer, and leave it out of past ones."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
from hypothesis import given
from hypothesis import strategies as st

from groupwise import ConfigError
from groupwise.envs.environment import Observation
from groupwise.rollout import AnchoredWindow, Full, PromptTemplate, PublishedTemplate, TemplateFile, Window
from groupwise.rollout.origins import attribute_prompt
from groupwise.rollout.prompts import DialogueFrame, History, Prompter, Template
from tests.unit.rollout.byte_tokens import CHAT, byte_tokenizer, stretches
from tests.unit.rollout.chat_templates import BAR, make_tokenizer

BARE = PromptTemplate(show_instruction=False)
R1 = make_tokenizer("r1_distill")
THINKING = CHAT.replace("'[assistant] ' }}{% endif %}", "'[assistant] <think>\n' }}{% endif %}")
"""A byte a token, so that all of a prompt can be read."""


def make_prompter(history: History, template: Template = BARE, *, system: str = "") -> Prompter:
    return Prompter(R1, template=template, history=history, instruction="", system=system)


def test_the_frame_of_r1_distill_has_two_beginnings_of_answers() -> None:
    frame = DialogueFrame.from_tokenizer(R1)
    assert frame.thought == "<think>"
    assert R1.decode(frame.opening) == f"<{BAR}begin▁of▁sentence{BAR}><{BAR}User{BAR}>"
    assert R1.decode(frame.before_past_response) == f"<{BAR}Assistant{BAR}>"
    assert R1.decode(frame.before_response) == f"<{BAR}Assistant{BAR}><think>\n"
    assert R1.decode(frame.between) == f"<{BAR}User{BAR}>"
    assert frame.end_id == R1.eos_token_id


@given(st.text(alphabet="ab 12+?\n.$İ我", min_size=1, max_size=30), st.sampled_from(["", "Be brief."]))
def test_for_one_step_the_ids_are_those_of_the_chat_template_for_the_question(question: str, system: str) -> None:
    turns = [{"role": "system", "content": system}] if system else []
    turns.append({"role": "user", "content": question})
    ids = R1.apply_chat_template(turns, add_generation_prompt=True, return_dict=False)
    file = TemplateFile(first="$observation", asks_for_tags=False)
    for template, history in ((BARE, Window()), (file, Window()), (file, Full())):
        made = make_prompter(history, template, system=system)
        assert list(made.prompt(made.encode_opening(""), [], Observation(text=question))) == list(ids)


RESPONSES = ("I add.</think>\n\n42", "So</think> two </think>", "</think>go", "cut off in the th", "")


@given(st.lists(st.tuples(st.sampled_from(["1 + 1?", "Go on."]), st.sampled_from(RESPONSES)), max_size=4))
def test_past_answers_are_shown_without_their_thoughts_as_the_chat_template_writes_them(
    past: list[tuple[str, str]],
) -> None:
    made = make_prompter(Window(steps=2))
    exchanges, turns = [], []
    for seen, said in past:
        response = (*made.encode(said), made.frame.end_id)
        exchanges.append(made.make_exchange(Observation(text=seen), response, "unused"))
        answer = said.split("</think>")[-1].strip() if "</think>" in said else ""
        turns += [{"role": "user", "content": seen}, {"role": "assistant", "content": answer}]
    turns = [*turns[-4:], {"role": "user", "content": "And now?"}]
    prompt = made.prompt(made.encode_opening(""), exchanges, Observation(text="And now?"))
    assert R1.decode(prompt) == R1.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)


@pytest.mark.parametrize("history", [Full(), AnchoredWindow()])
def test_prompts_that_would_have_to_continue_one_another_are_refused(history: History) -> None:
    with pytest.raises(ConfigError) as raised:
        make_prompter(history)
    kind = "full" if isinstance(history, Full) else "anchored_window"
    assert str(raised.value) == (
        f"rollout.history: with '{kind}' each prompt continues the one before. The chat template opens a new answer "
        "with <think> and drops the thoughts of past ones, so no prefix would be shared. Set rollout.history.kind = "
        '"window", or use a rollout.template of one message'
    )
    for template in (PublishedTemplate(), TemplateFile(first="$observation"), PromptTemplate(tell_past=True)):
        make_prompter(history, template)


def test_a_told_past_has_the_action_where_a_past_answer_begins() -> None:
    made = make_prompter(Full(), PromptTemplate(show_instruction=False, tell_past=True))
    said = (*made.encode("I think.</think>I go"), made.frame.end_id)
    past = [made.make_exchange(Observation(text="A door."), said, "go")]
    prompt = made.prompt(made.encode_opening(""), past, Observation(text="A wall."))
    turns = [("user", "A door."), ("assistant", "go"), ("user", "A wall.")]
    messages = [{"role": role, "content": content} for role, content in turns]
    assert R1.decode(prompt) == R1.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)


def test_every_token_of_such_a_dialogue_is_attributed() -> None:
    made = Prompter(byte_tokenizer(THINKING), template=BARE, history=Window(), instruction="")
    past = [made.make_exchange(Observation(text="A door."), made.encode("Hm.</think>open"), "open")]
    attributed = attribute_prompt(made, goal="Out.", past=past, seen=Observation(text="A wall."))
    assert attributed.ids == made.prompt(made.encode_opening("Out."), past, Observation(text="A wall."))
    assert stretches(made, *attributed) == [
        ("template", "[user] Goal: "),
        ("task", "Out."),
        ("template", "\n"),
        ("history", "A door."),
        ("template", " . [assistant] "),
        ("history", "open</s>"),
        ("template", "[user] "),
        ("observation", "A wall."),
        ("template", " . [assistant] <think>\n"),
    ]


@pytest.mark.parametrize(
    ("opened", "thought"),
    [("<think>\n", "<think>"), ("<seed:think>", "<seed:think>"), ("Answer: ", ""), ("</think>", "")],
)
def test_only_a_tag_opens_a_thought(opened: str, thought: str) -> None:
    chat = CHAT.replace("'[assistant] ' }}{% endif %}", f"'[assistant] {opened}' }}}}{{% endif %}}")
    assert DialogueFrame.from_tokenizer(byte_tokenizer(chat)).thought == thought
