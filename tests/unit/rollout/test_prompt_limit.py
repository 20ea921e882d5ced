"""Prompts that are too long: refused, cut on the left, or shown with fewer past steps."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")
from hypothesis import given
from hypothesis import strategies as st

from groupwise import ConfigError, Step, StopReason
from groupwise.engines.engine import Request
from groupwise.engines.scripted import ScriptedEngine
from groupwise.envs import Identity
from groupwise.envs.environment import Observation
from groupwise.models.tiny import make_word_tokenizer
from groupwise.rollout import Full, PromptTemplate, PublishedTemplate, TemplateFile, WholeResponse, Window
from groupwise.rollout.environment_runner import InProcess
from groupwise.rollout.episodes import Player, Rollout
from groupwise.rollout.prompts import NO_OPENING, Prompt, Prompter, Template
from groupwise.system.errors import EngineFault
from groupwise.training.config.run_config import RolloutConfig
from tests.unit.rollout.byte_tokens import CHAT, byte_tokenizer


class Counting:
    """A tokenizer whose ids count the characters of a text."""

    chat_template = None
    bos_token_id = None
    eos_token_id = 9999

    def __call__(self, text: str, *, add_special_tokens: bool) -> Any:
        return type("Encoded", (), {"input_ids": list(range(len(text)))})


def test_a_cut_on_the_left_keeps_the_last_ids() -> None:
    """The vector of the specification: of ids 0 to 4999, a limit of 4096 keeps 904 to 4999."""
    tokenizer: Any = Counting()
    made = Prompter(
        tokenizer,
        template=TemplateFile(first="$observation"),
        history=Window(),
        instruction="",
        max_tokens=4096,
        over_limit="cut_left",
    )
    [prompt] = made.make_prompts([(NO_OPENING, (), Observation(text="." * 4999))])  # the sign before a response is one
    assert prompt == Prompt(tuple(range(904, 5000)), num_shown=0, cut=904)
    [fits] = made.make_prompts([(NO_OPENING, (), Observation(text="." * 4095))])
    assert fits == Prompt(tuple(range(4096)), num_shown=0, cut=0)


TEMPLATES: tuple[Template, ...] = (
    PromptTemplate(),
    PublishedTemplate(),
    TemplateFile(first="$task $observation", later="$task $history $observation"),
)
TEXTS = st.text(alphabet="ab .", min_size=1, max_size=12)


def make_prompter(template: Template, steps: int | None = None, **limit: Any) -> Prompter:
    history = Full() if steps is None else Window(steps=steps)
    return Prompter(byte_tokenizer(CHAT), template=template, history=history, instruction="Do it.", **limit)


def make_prompt(made: Prompter, past: list[tuple[str, str]], seen: str) -> Prompt:
    exchanges = [made.make_exchange(Observation(text=text), made.encode(said), said) for text, said in past]
    [prompt] = made.make_prompts([(made.encode_opening("Out."), exchanges, Observation(text=seen))])
    assert made.prompt(made.encode_opening("Out."), exchanges, Observation(text=seen)) == prompt.ids
    return prompt


@given(st.sampled_from(TEMPLATES), st.lists(st.tuples(TEXTS, TEXTS), max_size=5), TEXTS, st.integers(1, 400))
def test_a_shortened_prompt_is_the_end_of_one_with_fewer_past_steps(
    template: Template, past: list[tuple[str, str]], seen: str, limit: int
) -> None:
    whole = make_prompt(make_prompter(template), past, seen)
    assert (whole.num_shown, whole.cut) == (len(past), 0)
    refusing = make_prompt(make_prompter(template, max_tokens=limit), past, seen)
    assert refusing == whole
    cut = make_prompt(make_prompter(template, max_tokens=limit, over_limit="cut_left"), past, seen)
    assert cut == Prompt(whole.ids[-limit:], len(past), max(len(whole.ids) - limit, 0))
    dropped = make_prompt(make_prompter(template, max_tokens=limit, over_limit="drop_oldest"), past, seen)
    by_steps = {steps: make_prompt(make_prompter(template, steps), past, seen) for steps in range(len(past) + 1)}
    fitting = [steps for steps, prompt in by_steps.items() if len(prompt.ids) <= limit]
    expected = by_steps[max(fitting, default=0)].ids[-limit:]
    assert dropped == Prompt(expected, max(fitting, default=0), len(whole.ids) - len(expected))


def test_a_copy_has_the_limit_too() -> None:
    made = make_prompter(PromptTemplate(), max_tokens=5, over_limit="cut_left").copy()
    assert len(make_prompt(made, [], "A door.").ids) == 5


# In rollouts.

ENV = Identity(num_words=4, length=2)
TOKENIZER = make_word_tokenizer((*ENV.vocabulary(), "goal", ":", ">", "."))


def play(max_tokens: int | None, over_limit: str = "refuse", hint: str = "") -> tuple[list[tuple[int, ...]], Any]:
    """Play one rollout of two steps; the prompts that the engine was given, and the trajectory."""
    prompter = Prompter(
        TOKENIZER,
        template=PromptTemplate(),
        history=Full(),
        instruction=ENV.instruction(),
        max_tokens=max_tokens,
        over_limit=over_limit,  # type: ignore[arg-type]
    )
    asked: list[tuple[int, ...]] = []

    def answer(request: Request) -> tuple[int, ...]:
        asked.append(request.prompt_ids)
        return (*prompter.encode("red"), prompter.frame.end_id)

    player = Player(
        engine=ScriptedEngine(answer),
        host=InProcess(ENV),
        prompter=prompter,
        action_parser=WholeResponse(),
        max_tokens=4,
    )
    rollout = Rollout(task=ENV.task_set("train")[0], number=0, seed=0, hint_text=hint)
    [trajectory] = player.play([rollout], temperature=1.0)
    return asked, trajectory


def test_rollouts_record_what_was_cut_and_keep_their_state_keys() -> None:
    whole, free = play(None)
    first, second = map(len, whole)
    assert first < second
    for over_limit in ("cut_left", "drop_oldest"):
        asked, trajectory = play(first, over_limit)
        steps: tuple[Step, ...] = trajectory.steps
        assert [step.prompt_ids for step in steps] == asked
        assert asked[0] == whole[0]
        assert [step.prompt_cut for step in steps] == [0, second - len(asked[1])]
        assert steps[1].prompt_cut > 0
        assert [step.state_key for step in steps] == [step.state_key for step in free.steps]
        if over_limit == "cut_left":
            assert asked[1] == whole[1][-first:]


def test_a_hinted_prompt_and_its_twin_without_the_hint_have_the_same_limit() -> None:
    _, trajectory = play(6, "cut_left", hint="red " * 4)
    assert [len(step.prompt_ids) for step in trajectory.steps] == [6, 6]
    assert all(len(step.unhinted_prompt_ids) <= 6 for step in trajectory.steps)


def test_a_refused_prompt_ends_its_rollout_and_a_first_one_the_run() -> None:
    whole, _ = play(None)
    asked, trajectory = play(len(whole[0]))
    assert asked == whole[:1]
    assert trajectory.stop is StopReason.TRUNCATED
    assert trajectory.scores["success"] == 0.0
    advice = 'raise it, shorten rollout.history, or set rollout.over_limit = "cut_left"'
    assert trajectory.error == (
        f"a prompt of {len(whole[1])} tokens is longer than rollout.max_prompt_tokens, {len(whole[0])}; {advice}"
    )
    with pytest.raises(EngineFault) as raised:
        play(2)
    assert str(raised.value) == (
        f"task {trajectory.task.id!r}: a prompt of {len(whole[0])} tokens is longer than rollout.max_prompt_tokens, 2; "
        f"{advice}"
    )


def test_a_way_to_shorten_needs_a_limit() -> None:
    with pytest.raises(ConfigError) as raised:
        RolloutConfig(over_limit="cut_left")
    assert str(raised.value) == (
        "RolloutConfig: over_limit: 'cut_left' needs a limit; set rollout.max_prompt_tokens, or leave out over_limit"
    )
    assert RolloutConfig(max_prompt_tokens=9, over_limit="cut_left").max_prompt_tokens == 9
