"""Prompts from a text with placeholders: the text to the letter, and the ids that the chat template gives for it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from string import Template
from typing import Any

import pytest

pytest.importorskip("torch")
from hypothesis import given
from hypothesis import strategies as st

from groupwise import ConfigError
from groupwise.envs.environment import Observation
from groupwise.envs.kit.words import split_words
from groupwise.parts.outside import only_reading
from groupwise.rollout import Full, PromptTemplate, TemplateFile, Window, prompts
from groupwise.rollout.actions import TAGS
from groupwise.rollout.origins import attribute_prompt
from groupwise.rollout.prompts import PLACEHOLDERS, PastStep, Prompter
from groupwise.training.config.run_config import RolloutConfig
from tests.unit.rollout.byte_tokens import CHAT, byte_tokenizer, stretches
from tests.unit.rollout.chat_templates import make_tokenizer

FIRST = "\nYou are an agent.\nYour current observation is: $observation\nYour admissible actions are: [$admissible].\n"
LATER = (
    "\nYour task is to: $task\nYou have taken $steps_taken step(s). Below are the last $num_shown: $history\n"
    "You are at step $step, and see: $observation\nYour admissible actions are: [$admissible].\n"
)
SEEN = Observation(text="You arrive at desk 1.", admissible=("go to bed 1", "take mug 1"))
PAST = (("You see a bed 1.", "look"), ("Nothing happens.", "go to desk 1"))
EXAMPLES = Path(__file__).parents[3] / "examples"
CHATS = ("chatml", "llama_3", "mistral", "r1_distill")


def make_prompter(template: prompts.Template, name: str, *, steps: int = 2, system: str = "") -> Prompter:
    return Prompter(
        make_tokenizer(name), template=template, history=Window(steps=steps), instruction="unused", system=system
    )


def make_prompt(made: Prompter, past: Sequence[PastStep], seen: Observation, *, goal: str, hint: str = "") -> list[int]:
    exchanges = [made.make_exchange(Observation(text=text), made.encode(done), done) for text, done in past]
    return list(made.prompt(made.encode_opening(goal, hint), exchanges, seen))


def ask_chat_template(name: str, message: str, *, system: str = "") -> list[int]:
    turns = [{"role": "system", "content": system}] if system else []
    turns.append({"role": "user", "content": message})
    ids = make_tokenizer(name).apply_chat_template(turns, add_generation_prompt=True, return_dict=False)
    return list(ids)


def test_a_text_is_filled_to_the_letter() -> None:
    template = TemplateFile(first=FIRST, later=LATER)
    listed = "'go to bed 1'\n 'take mug 1'"
    assert template.write_step([], SEEN, num_past=0) == (
        "\nYou are an agent.\nYour current observation is: You arrive at desk 1.\n"
        f"Your admissible actions are: [{listed}].\n"
    )
    seen = Observation(text="You see a mug for $5.", admissible=SEEN.admissible, goal="take a mug")
    assert template.write_step(PAST, seen, num_past=7) == (
        "\nYour task is to: take a mug\nYou have taken 7 step(s). Below are the last 2: "
        "[Observation 6: 'You see a bed 1.', Action 6: 'look']\n"
        "[Observation 7: 'Nothing happens.', Action 7: 'go to desk 1']\n"
        f"You are at step 8, and see: You see a mug for $5.\nYour admissible actions are: [{listed}].\n"
    )


def test_lines_of_past_steps_and_actions_can_be_chosen() -> None:
    template = TemplateFile(
        first="$observation costs $$5",
        later="$history | $admissible",
        history_line="$n) ${seen} -> $done",
        history_join="; ",
        admissible_item="'$action',",
        admissible_join="\n",
        asks_for_tags=False,
    )
    assert template.write_step([], SEEN, num_past=0) == "You arrive at desk 1. costs $5"
    assert template.write_step(PAST, SEEN, num_past=2) == (
        "1) You see a bed 1. -> look; 2) Nothing happens. -> go to desk 1 | 'go to bed 1',\n'take mug 1',"
    )


def test_without_a_later_text_the_first_one_stays() -> None:
    template = TemplateFile(first="Step $step: $observation", asks_for_tags=False)
    assert [template.write_step((), SEEN, num_past=n) for n in (0, 3)] == [
        "Step 1: You arrive at desk 1.",
        "Step 4: You arrive at desk 1.",
    ]
    assert template.show_admissible == "no"
    assert TemplateFile(first="$observation", later="$admissible").show_admissible == "yes"


@pytest.mark.parametrize("name", CHATS)
@pytest.mark.parametrize("system", ["", "Be brief."])
def test_the_ids_are_those_of_the_chat_template_for_the_filled_text(name: str, system: str) -> None:
    if system and name == "mistral":
        with pytest.raises(ConfigError, match="the chat template refuses a system message"):
            make_prompter(TemplateFile(first=FIRST), name, system=system)
        return
    made = make_prompter(TemplateFile(first=FIRST, later=LATER), name, system=system)
    first = (
        "\nYou are an agent.\nYour current observation is: You arrive at desk 1.\n"
        "Your admissible actions are: ['go to bed 1'\n 'take mug 1'].\n"
    )
    later = (
        "\nYour task is to: take a mug\nYou have taken 2 step(s). Below are the last 2: "
        "[Observation 1: 'You see a bed 1.', Action 1: 'look']\n[Observation 2: 'Nothing happens.', Action 2: 'go to "
        "desk 1']\nYou are at step 3, and see: You arrive at desk 1.\nYour admissible actions are: ['go to bed 1'\n "
        "'take mug 1'].\n"
    )
    assert make_prompt(made, (), SEEN, goal="take a mug") == ask_chat_template(name, first, system=system)
    assert make_prompt(made, PAST, SEEN, goal="take a mug") == ask_chat_template(name, later, system=system)
    hinted = make_prompt(made, (), SEEN, goal="take a mug", hint="Look at the desk.")
    assert hinted == ask_chat_template(name, f"Look at the desk.\n{first}", system=system)


TEXTS = st.text(alphabet="ab \n\t.[]$'İ我", max_size=20)


@given(st.sampled_from(CHATS), TEXTS, TEXTS, st.lists(st.tuples(TEXTS, TEXTS), max_size=4), st.integers(0, 3))
def test_whatever_is_said_the_ids_are_those_of_the_chat_template(
    name: str, task: str, text: str, past: list[PastStep], steps: int
) -> None:
    template = TemplateFile(first="$task\n$observation", later="$task\n$steps_taken: $history\n$observation")
    shown = past[max(len(past) - steps, 0) :]
    numbers = range(len(past) - len(shown) + 1, len(past) + 1)
    told = [
        f"[Observation {n}: '{seen}', Action {n}: '{done}']" for n, (seen, done) in zip(numbers, shown, strict=True)
    ]
    said = "\n".join([task, f"{len(past)}: " + "\n".join(told), text]) if past else f"{task}\n{text}"
    made = make_prompter(template, name, steps=steps)
    assert make_prompt(made, past, Observation(text=text), goal=task) == ask_chat_template(name, said)


def test_a_message_in_pieces_has_other_ids() -> None:
    """So the tests above would fail for a template that puts its message together from pieces."""
    seen, tokenizer = Observation(text="\nYou see a mug."), make_tokenizer("chatml")
    whole = ask_chat_template("chatml", seen.text)
    assert make_prompt(make_prompter(TemplateFile(first="$observation"), "chatml"), (), seen, goal="") == whole
    pieces = make_prompt(make_prompter(PromptTemplate(show_instruction=False), "chatml"), (), seen, goal="")
    assert pieces != whole
    assert tokenizer.decode(pieces) == tokenizer.decode(whole)


def test_without_a_chat_template_the_text_is_encoded_at_once_too() -> None:
    tokenizer = make_tokenizer("plain")
    made = make_prompter(TemplateFile(first="\n$observation"), "plain", system="Be brief.\n")
    whole = tokenizer("Be brief.\n\n\nYou arrive at desk 1.>", add_special_tokens=False).input_ids
    assert make_prompt(made, (), SEEN, goal="") == [tokenizer.bos_token_id, *whole]


def test_a_copy_for_another_thread_makes_the_same_prompts() -> None:
    made = make_prompter(TemplateFile(first=FIRST, later=LATER), "chatml")
    assert make_prompt(made.copy(), PAST, SEEN, goal="go") == make_prompt(made, PAST, SEEN, goal="go")


def test_every_token_is_attributed() -> None:
    template = TemplateFile(first="$observation", later="Task: $task Past: $history Now: $observation [$admissible]")
    made = Prompter(byte_tokenizer(CHAT), template=template, history=Full(), instruction="", system="Be brief.")
    exchange = made.make_exchange(Observation(text="A door."), made.encode("open"), "open")
    attributed = attribute_prompt(
        made, goal="Get out.", past=[exchange], seen=Observation(text="A wall.", admissible=("turn",)), hint_text="Go!"
    )
    assert stretches(made, *attributed) == [
        ("template", "[system] "),
        ("system", "Be brief."),
        ("template", " . [user] "),
        ("hint", "Go!"),
        ("template", "\nTask: "),
        ("task", "Get out."),
        ("template", " Past: [Observation 1: '"),
        ("history", "A door."),
        ("template", "', Action 1: '"),
        ("history", "open"),
        ("template", "'] Now: "),
        ("observation", "A wall."),
        ("template", " ['"),
        ("observation", "turn"),
        ("template", "'] . [assistant] "),
    ]


def test_its_words_are_all_it_says() -> None:
    template = TemplateFile(first=FIRST, later=LATER, history_join=" | ")
    known = {word for text in template.words() for word in split_words(text)}
    empty = Observation(text="", admissible=("", ""))
    said = template.write_step([("", "")] * 3, empty, num_past=49) + template.write_step([], empty, num_past=0)
    assert set(split_words(said)) <= known


# Files and errors.


def test_a_file_is_its_text_without_the_last_line_break(tmp_path: Path) -> None:
    path = tmp_path / "first.txt"
    path.write_bytes(b"\r\n$observation \r\n\r\n")
    template = TemplateFile(first=str(path))
    assert template.first == "\n$observation \n"
    path.unlink()
    assert TemplateFile(**{key: value for key, value in template.config().items() if key != "kind"}) == template


@pytest.mark.parametrize("world", ["alfworld", "webshop"])
def test_the_texts_of_the_examples_show_all_that_a_step_needs(world: str) -> None:
    texts = {name: str(EXAMPLES / "prompts" / f"{world}_{name}.txt") for name in ("first", "later")}
    template = TemplateFile(**texts)
    for text in (template.first, template.later or ""):
        assert {"task", "observation", "admissible"} <= set(Template(text).get_identifiers())
        assert all(tag in text for tag in TAGS)
        assert not text.endswith("\n")
    assert set(Template(template.later or "").get_identifiers()) == set(PLACEHOLDERS)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"first": "See $observaton"}, "first: the placeholder `$observaton` is unknown; did you mean 'observation'? "),
        ({"first": "$Task"}, "first: the placeholder `$Task` is unknown; did you mean 'task'? "),
        ({"first": "$task", "later": "For 5 $"}, "later: a dollar sign begins no placeholder; write `$$` for a dollar"),
        (
            {"first": "Do\nit."},
            "first: the text has no placeholder; put in one of $task, $observation, $admissible, $step, $steps_taken, "
            "$num_shown, $history",
        ),
        (
            {"first": "$task", "history_line": "$seen $did"},
            "history_line: the placeholder `$did` is unknown; Valid: done, n, seen",
        ),
        (
            {"first": "$task", "admissible_item": "-"},
            "admissible_item: the text has no placeholder; put in one of $action",
        ),
        (
            {"first": "prompts/frist.txt"},
            "first: 'prompts/frist.txt' cannot be read (No such file or directory); give the path of a text file, "
            "relative to the run file, or the text itself with placeholders such as $observation",
        ),
        ({"later": "$task"}, "first: it is missing; give it a value"),
    ],
)
def test_an_error_says_what_is_wrong_with_a_text(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        TemplateFile(**fields)
    assert str(raised.value).startswith(f"TemplateFile: {message}")


def test_an_error_in_a_file_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "first.txt").write_text("What is $q?\n", encoding="utf-8")
    with pytest.raises(ConfigError) as raised:
        TemplateFile(first="first.txt")
    assert str(raised.value).startswith("TemplateFile: first: 'first.txt': the placeholder `$q` is unknown; Valid: ")
    (tmp_path / "first.txt").write_bytes(b"$task \xff")
    with pytest.raises(
        ConfigError, match=r"'first.txt' cannot be read \(byte 7 is not UTF-8 \(0xff\)\); give the path"
    ):
        TemplateFile(first="first.txt")


def test_a_file_is_not_read_without_trust(tmp_path: Path) -> None:
    path = tmp_path / "first.txt"
    path.write_text("$observation", encoding="utf-8")
    with only_reading(), pytest.raises(ConfigError, match=r"first\.txt' is a file, not loaded without --trust"):
        TemplateFile(first=str(path))
    with only_reading():
        assert TemplateFile(first="$observation").first == "$observation"


def test_a_text_with_history_needs_a_history() -> None:
    shown = {"kind": "template_file", "first": "$observation", "later": "$history $observation"}
    with pytest.raises(ConfigError) as raised:
        RolloutConfig(template=shown, action_parser="tagged", history={"kind": "window", "steps": 0})
    assert str(raised.value) == (
        "RolloutConfig: template: the text has the placeholder $history, but rollout.history shows no past step; set "
        'rollout.history = { kind = "window", steps = 2 }, or leave out $history'
    )
    assert RolloutConfig(template=shown, action_parser="tagged").template == TemplateFile(
        first="$observation", later="$history $observation"
    )
    alone = {"kind": "template_file", "first": "$observation"}
    RolloutConfig(template=alone, action_parser="tagged", history={"kind": "window", "steps": 0})


def test_a_text_says_whether_it_asks_for_tags() -> None:
    plain = {"kind": "template_file", "first": "$observation", "asks_for_tags": False}
    assert RolloutConfig(template=plain).template == TemplateFile(first="$observation", asks_for_tags=False)
    with pytest.raises(ConfigError, match=r"or template\.asks_for_tags of a template_file"):
        RolloutConfig(template={"kind": "template_file", "first": "$observation"})
