"""Prompts are put together from ids: nothing sampled is ever encoded again."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
from transformers import PreTrainedTokenizerFast

from groupwise import ConfigError, Task
from groupwise.envs.environment import Observation
from groupwise.models.tiny import make_word_tokenizer
from groupwise.rollout import Full, Window
from groupwise.rollout.prompts import NO_OPENING, DialogueFrame, Exchange, Prompter, PromptTemplate
from tests.unit.rollout.byte_tokens import CHAT as BYTE_CHAT
from tests.unit.rollout.byte_tokens import byte_tokenizer

WORDS = ("do", "it", "goal", ":", ">", "see", "mug", "cup", "take", "possible", ",", ".", "user", "bot")
CHAT = (
    "{% for m in messages %}{{ 'user : ' if m.role == 'user' else 'bot : ' }}{{ m.content }}"
    "{{ '</s>' if m.role == 'assistant' else ' . ' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'bot : ' }}{% endif %}"
)


def tokenizer(chat: str | None = None) -> PreTrainedTokenizerFast:
    made = make_word_tokenizer(WORDS)
    made.chat_template = chat
    return made


def prompter(history: Window | Full, *, chat: str | None = None, **template: bool) -> Prompter:
    return Prompter(tokenizer(chat), template=PromptTemplate(**template), history=history, instruction="do it")


def text(made: Prompter, ids: tuple[int, ...]) -> str:
    return str(tokenizer().decode(ids))


def exchange(made: Prompter, seen: str, said: str, *, ended: bool = True) -> Exchange:
    end = (made.frame.end_id,) if ended else ()
    return Exchange(observation_ids=made.encode(seen), response_ids=(*made.encode(said), *end), in_words=(seen, said))


def test_a_plain_prompt_is_instruction_goal_past_and_present() -> None:
    made = prompter(Full())
    past = [exchange(made, "see mug", "take mug")]
    prompt = made.prompt(made.encode_opening("take mug"), past, Observation(text="see cup"))
    assert text(made, prompt) == "<s> do it goal : take mug see mug > take mug </s> see cup >"


def test_a_window_leaves_out_the_earlier_past_but_not_the_opening() -> None:
    made = prompter(Window(steps=1), show_goal=False)
    past = [exchange(made, "see mug", "take mug"), exchange(made, "see cup", "take cup")]
    prompt = made.prompt(made.encode_opening("take mug"), past, Observation(text="see it"))
    assert text(made, prompt) == "<s> do it see cup > take cup </s> see it >"


def test_with_a_full_memory_each_prompt_continues_the_one_before_token_by_token() -> None:
    for chat in (None, CHAT):
        made = prompter(Full(), chat=chat)
        opening = made.encode_opening("take mug")
        before = made.prompt(opening, [], Observation(text="see mug"))
        step = exchange(made, "see mug", "take mug")
        after = made.prompt(opening, [step], Observation(text="see cup"))
        assert after[: len(before) + len(step.response_ids)] == before + step.response_ids


def test_a_response_that_was_cut_off_is_closed_in_later_prompts() -> None:
    made = prompter(Full())
    cut = exchange(made, "see mug", "take", ended=False)
    assert text(made, made.prompt(NO_OPENING, [cut], Observation(text="see cup"))) == "see mug > take </s> see cup >"


def test_a_chat_template_draws_the_frame() -> None:
    made = prompter(Full(), chat=CHAT)
    past = [exchange(made, "see mug", "take mug")]
    prompt = made.prompt(made.encode_opening("take mug"), past, Observation(text="see cup"))
    assert text(made, prompt) == ("user : do it goal : take mug see mug . bot : take mug </s> user : see cup . bot :")


def test_possible_actions_are_listed_where_asked_for() -> None:
    seen = Observation(text="see mug", admissible=("take mug", "take cup"))
    assert PromptTemplate(show_admissible="yes").write_observation(seen) == "see mug Possible: take mug, take cup."
    numbered = PromptTemplate(show_admissible="numbered")
    assert numbered.write_observation(seen) == "see mug Possible: 1 take mug, 2 take cup."
    assert numbered.words()[:3] == ("1", "2", "3")
    assert PromptTemplate().write_observation(seen) == "see mug"


def test_the_text_of_a_response_leaves_out_its_end() -> None:
    made = prompter(Full())
    assert made.text((*made.encode("take mug"), made.frame.end_id)) == "take mug"


def test_a_template_that_treats_past_and_new_answers_differently_is_refused() -> None:
    uneven = CHAT.replace("{{ 'bot : ' }}{% endif %}", "{{ 'bot > ' }}{% endif %}")
    with pytest.raises(ConfigError) as caught:
        prompter(Window(steps=1), chat=uneven)
    assert str(caught.value) == (
        "the chat template opens a past answer differently from a new one, so prompts cannot show past responses as "
        'sampled. Set rollout.history = { kind = "window", steps = 0 }, or use a rollout.template of one message'
    )
    alone = prompter(Window(steps=0), chat=uneven)
    prompt = alone.prompt(alone.encode_opening("take mug"), [], Observation(text="see mug"))
    assert text(alone, prompt) == "user : do it goal : take mug see mug . bot >"


def test_a_template_that_drops_turns_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        DialogueFrame.from_tokenizer(tokenizer("{{ messages[-1].content }}"))
    assert str(caught.value) == (
        "the chat template changes or drops what is said in it; use a template that keeps its turns"
    )


def test_a_told_past_says_the_action_and_leaves_the_list_out() -> None:
    tokenizer = make_word_tokenizer(["see", "mug", "take", "possible", ":", ",", ".", ">", "1", "2"])
    template = PromptTemplate(show_instruction=False, show_goal=False, show_admissible="numbered", tell_past=True)
    prompter = Prompter(tokenizer, template=template, history=Window(steps=1), instruction="")
    seen = Observation(text="see mug", admissible=("take mug", "see mug"))
    shown, said = prompter.encode_observation(seen), (*prompter.encode("1"), prompter.frame.end_id)
    exchange = prompter.make_exchange(seen, said, "take mug")
    prompt = prompter.prompt(prompter.encode_opening(""), [exchange], seen)
    assert tokenizer.decode(prompt) == ("<s> see mug > take mug </s> see mug possible : 1 take mug , 2 see mug . >")
    exact = Prompter(
        tokenizer, template=template.model_copy(update={"tell_past": False}), history=Window(steps=1), instruction=""
    ).make_exchange(seen, said, "take mug")
    assert (exact.observation_ids, exact.response_ids) == (shown, said)


def read_opening(system: str, chat: str | None) -> str:
    made = Prompter(
        byte_tokenizer(chat), template=PromptTemplate(), history=Full(), instruction="Do it.", system=system
    )
    return str(made.tokenizer.decode(made.encode_opening("Out.").ids, skip_special_tokens=False))


def test_a_system_prompt_is_a_system_message_or_a_line_before_everything() -> None:
    assert read_opening("Be brief.", BYTE_CHAT) == "[system] Be brief. . [user] Do it. Goal: Out.\n"
    assert read_opening("", BYTE_CHAT) == "[user] Do it. Goal: Out.\n"
    assert read_opening("Be brief.", None) == "Be brief.\nDo it. Goal: Out.\n"
    assert read_opening("", None) == "Do it. Goal: Out.\n"


def test_a_copy_has_the_system_prompt_too() -> None:
    made = Prompter(byte_tokenizer(), template=PromptTemplate(), history=Full(), instruction="", system="Be brief.")
    assert made.copy().encode_opening("x") == made.encode_opening("x")


@pytest.mark.parametrize(
    ("chat", "sentence"),
    [
        (
            "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}" + CHAT,
            "the chat template refuses a system message (System role not supported); leave out rollout.system",
        ),
        (
            "{% set messages = messages if messages[0].role == 'user' else messages[1:] %}" + CHAT,
            "the chat template drops or changes the system message; leave out rollout.system",
        ),
    ],
)
def test_a_chat_template_without_system_messages_is_a_sentence(chat: str, sentence: str) -> None:
    DialogueFrame.from_tokenizer(byte_tokenizer(chat))
    with pytest.raises(ConfigError) as raised:
        DialogueFrame.from_tokenizer(byte_tokenizer(chat), system="Be brief.")
    assert str(raised.value) == sentence


def test_a_task_of_a_mixture_has_the_instruction_of_its_own_environment_and_others_have_the_same_prompter() -> None:
    words, task = tokenizer(), Task(id="t", tags=("take mug",))
    alone = Prompter(words, template=PromptTemplate(), history=Full(), instruction="do it")
    mixed = Prompter(
        words, template=PromptTemplate(), history=Full(), instruction="do it", instruct=lambda task: task.tags[0]
    )
    assert alone.for_task(task) is alone
    assert mixed.encode_opening("see") == alone.encode_opening("see")
    taking = Prompter(words, template=PromptTemplate(), history=Full(), instruction="take mug")
    assert mixed.for_task(task).encode_opening("see") == taking.encode_opening("see")
    assert mixed.copy().for_task(task).encode_opening("see") == taking.encode_opening("see")
    assert mixed.instruction == "do it"
