"""A preview needs a tokenizer and no weights; what it cannot show, it says in a sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
from groupwise import ConfigError, methods
from groupwise.data.records import Task
from groupwise.envs.environment import Observation, Outcome
from groupwise.models import PretrainedModel, TinyModel
from groupwise.parts.part import Part
from groupwise.system.errors import EngineFault
from groupwise.training.config.run_config import RolloutConfig, RunConfig, TrainingConfig
from groupwise.training.doctor.preview import RunPreview, preview_run
from tests.unit.rollout.byte_tokens import CHAT, byte_tokenizer

HOUSEHOLD = {"kind": "household", "rooms": ["bedroom"], "categories": ["pick"], "num_receptacles": 3, "num_objects": 2}


class Riddle(Part, slot="env", self_contained=True):
    """A world that asks, and neither lists what could be answered nor knows it."""

    max_steps: int = 2
    length: int = 3

    def task_set(self, split: str) -> tuple[Task, ...]:
        return (Task.create(env="riddle", split=split, seed=0),)

    def open(self, task: Task) -> _Asking:
        return _Asking("what " * self.length)

    def vocabulary(self) -> tuple[str, ...]:
        return ("what", "moon", "no", "answer")

    def instruction(self) -> str:
        return "answer"


class _Asking:
    def __init__(self, text: str) -> None:
        self._text, self._asked = text, 0

    def observe(self) -> Observation:
        return Observation(text=self._text)

    def act(self, action: str) -> Outcome:
        self._asked += 1
        return Outcome(
            observation=Observation(text=f"no {self._text}"), terminated=self._asked == 2, accepted=action == "moon"
        )


def make_config(env: Any = None, **changes: Any) -> RunConfig:
    settings = {
        "algorithm": methods.build("grpo"),
        "env": env or HOUSEHOLD,
        "model": TinyModel(hidden=16, layers=1, heads=2),
        "rollout": RolloutConfig(max_tokens=8, group_size=2, workers=0),
        "training": TrainingConfig(tasks=2),
    }
    return RunConfig(**{**settings, **changes})


def rollout(**settings: Any) -> RolloutConfig:
    return RolloutConfig(**{"max_tokens": 8, "group_size": 2, "workers": 0, **settings})


def verdicts(preview: RunPreview) -> dict[str, str]:
    return {reading.sample: reading.verdict for reading in preview.readings}


@pytest.fixture
def without_weights(tmp_path: Path) -> Path:
    """A folder in the Hugging Face layout that has a tokenizer and settings, and no weights."""
    model, tokenizer = TinyModel(hidden=16, layers=1, heads=2).open(words=make_config().words(), seed=0)
    model.config.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def test_a_folder_without_weights_is_enough_and_shows_what_the_whole_model_would(without_weights: Path) -> None:
    folder = make_config(model=PretrainedModel(path=str(without_weights)))
    assert preview_run(folder).rollouts == preview_run(make_config()).rollouts
    with pytest.raises(ConfigError):
        folder.model.open(words=(), seed=0)


def test_history_and_template_are_at_work_over_three_steps() -> None:
    shown = preview_run(make_config(), num_tasks=1).rollouts[0]
    past = [sum(origin == "history" for origin in step.prompt.origins) for step in shown.steps]
    assert len(past) == 3
    assert past[0] == 0 < past[1] < past[2]
    assert all(step.said_by == "expert" and step.well_formed and step.accepted for step in shown.steps)
    alone = preview_run(make_config(rollout=rollout(history={"kind": "window", "steps": 0})), num_tasks=1).rollouts[0]
    assert all("history" not in step.prompt.origins for step in alone.steps)


def test_the_action_rule_is_shown_at_its_work() -> None:
    assert verdicts(preview_run(make_config(rollout=rollout(max_tokens=12)))) == {
        "as it is asked for": "valid",
        "cut off at max_tokens": "malformed",
        "in other words": "invalid",
        "an action that is not offered": "invalid",
        "nothing": "malformed",
    }


def test_samples_are_cut_where_a_response_would_be() -> None:
    """The end of a response is a token too: four words need five."""
    for max_tokens, is_cut in ((5, False), (4, True), (3, True)):
        shown = preview_run(make_config(rollout=rollout(max_tokens=max_tokens)))
        reading, step = shown.readings[0], shown.rollouts[0].steps[0]
        assert reading.is_cut == step.is_cut == is_cut
        assert (reading.verdict == "valid") == step.well_formed == (not is_cut)
        assert len(reading.response.split()) == min(4, max_tokens)


def test_tags_are_read_where_the_tokenizer_keeps_them_whole(without_weights: Path) -> None:
    byte_tokenizer(CHAT).save_pretrained(without_weights)
    tagged = rollout(template={"kind": "published_template"}, action_parser="tagged", max_tokens=100)
    config = make_config(rollout=tagged, model=PretrainedModel(path=str(without_weights)))
    assert verdicts(preview_run(config, responses=["go"])) == {
        "given": "malformed",
        "as it is asked for": "valid",
        "cut off at max_tokens": "malformed",
        "in other words": "malformed",
        "an action that is not offered": "invalid",
        "nothing": "malformed",
    }


def test_responses_can_be_given() -> None:
    shown = preview_run(make_config(), num_tasks=1, responses=["go to desk 1", "look"])
    steps = shown.rollouts[0].steps
    assert [step.action for step in steps][:2] == ["go to desk 1", "look"]
    assert [step.said_by for step in steps] == ["given", "given", "expert"]


def test_a_world_that_lists_no_actions_shows_its_first_prompt_and_says_what_is_missing() -> None:
    shown = preview_run(make_config(Riddle()))
    assert [len(rollout.steps) for rollout in shown.rollouts] == [1]
    assert shown.rollouts[0].steps[0].response_ids == ()
    assert shown.notes == (
        "the environment has no expert and lists no possible actions; give responses with --response to see further "
        "steps",
    )
    answered = preview_run(make_config(Riddle()), responses=["moon", "moon"])
    assert [step.accepted for step in answered.rollouts[0].steps] == [True, True]
    assert answered.notes == ()


def test_a_system_prompt_is_told_apart_and_its_words_are_known() -> None:
    shown = preview_run(make_config(rollout=rollout(system="Zebras never answer.")), num_tasks=1)
    step = shown.rollouts[0].steps[0]
    said = "".join(
        text for text, origin in zip(step.prompt_texts, step.prompt.origins, strict=True) if origin == "system"
    )
    assert said.split() == ["zebras", "never", "answer", "."]
    assert shown.notes == ()


def test_words_that_the_tokenizer_does_not_know_are_counted() -> None:
    shown = preview_run(make_config(), num_tasks=1, responses=["xylophone"])
    assert shown.notes == (
        "the tokenizer does not know 3 tokens of these prompts and responses; the model sees one and the same token "
        "for them",
    )


def test_a_first_prompt_that_does_not_fit_stops_with_a_sentence() -> None:
    small = TinyModel(hidden=16, layers=1, heads=2, context=32)
    with pytest.raises(EngineFault, match=r"a prompt of .* tokens and 8 to sample do not fit into the model's 32"):
        preview_run(make_config(Riddle(length=40), model=small), responses=["moon"])


def test_prompts_that_will_outgrow_the_model_are_foretold() -> None:
    small = TinyModel(hidden=16, layers=1, heads=2, context=160)
    shown = preview_run(make_config(model=small, rollout=rollout(history="full")), num_tasks=1)
    assert len(shown.notes) == 1
    assert shown.notes[0].startswith("the last prompts of a long rollout have about ")
    assert shown.costs.longest_prompt > 160 - 8


def test_a_missing_tokenizer_is_a_sentence(without_weights: Path) -> None:
    for path in without_weights.glob("tokenizer*"):
        path.unlink()
    with pytest.raises(ConfigError) as raised:
        preview_run(make_config(model=PretrainedModel(path=str(without_weights))))
    assert str(raised.value).startswith(f"model.path: cannot load {str(without_weights)!r} (")
    assert "\n" not in str(raised.value)


def test_a_model_that_has_no_tokenizer_of_its_own_is_a_sentence() -> None:
    class Bare(Part, slot="model"):
        def open(self, *, words: tuple[str, ...], seed: int) -> tuple[Any, Any]:
            raise AssertionError("weights are not loaded")

    with pytest.raises(ConfigError, match=r"model: Bare has no open_tokenizer\(\*, words\)"):
        preview_run(make_config(model=Bare()))


def test_a_task_that_nobody_has_is_a_sentence() -> None:
    with pytest.raises(ConfigError, match="no training task begins with 'nowhere'; `groupwise tasks` lists them"):
        preview_run(make_config(), task_ids=["nowhere"])


def test_a_task_may_be_given_by_its_id_or_by_a_beginning_as_everywhere() -> None:
    last = preview_run(make_config(), num_tasks=3).rollouts[-1].task
    for wanted in (last, last[:-2], last.rpartition("-")[2][:8]):
        assert [rollout.task for rollout in preview_run(make_config(), task_ids=[wanted]).rollouts] == [last]


def test_costs_do_not_depend_on_how_many_steps_are_shown() -> None:
    one, three = preview_run(make_config(), num_steps=1), preview_run(make_config(), num_steps=3)
    assert [len(rollout.steps) for rollout in one.rollouts] == [1, 1]
    assert one.costs.longest_prompt == three.costs.longest_prompt
    assert one.costs.distinct_tokens == three.costs.distinct_tokens


@pytest.mark.more
def test_costs_grow_with_what_an_update_holds() -> None:
    few, many = preview_run(make_config()).costs, preview_run(make_config(training=TrainingConfig(tasks=20))).costs
    assert (few.rollouts, many.rollouts) == (4, 40)
    assert many.sampled_tokens == 10 * few.sampled_tokens
    assert many.distinct_tokens > 5 * few.distinct_tokens
    assert few.seconds > 0
    window = preview_run(make_config(rollout=rollout(history={"kind": "window", "steps": 1}))).costs
    whole = preview_run(make_config(rollout=rollout(history="full"))).costs
    assert window.longest_prompt < whole.longest_prompt
    assert window.distinct_tokens > whole.distinct_tokens  # what is dropped in front is read again
