"""Measures and judges that come with groupwise: what they ask, and the info they make of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from groupwise import Algorithm, ConfigError, Part, RecordError, Step, Task, Trajectory, methods
from groupwise.credit import ReferenceKl, shape_group
from groupwise.rollout.judges import JudgeQuestion, PhraseJudge
from groupwise.rollout.scorers import JudgeScore, ReferenceScore, check_scorers

TASK = Task(id="q", payload={"answer": "door"})


def rollout(number: int, *responses: tuple[int, ...], **fields: Any) -> Trajectory:
    steps = tuple(
        Step(
            index=i,
            observation=f"room {i}",
            action=f"go {i}",
            prompt_ids=(1, i),
            response_ids=ids,
            logp_behaviour=tuple(-0.5 for _ in ids),
            **fields,
        )
        for i, ids in enumerate(responses)
    )
    return Trajectory(id=str(number), task=TASK, rollout=number, steps=steps)


class Scripted:
    """Tools that answer by rule: a token t has log-prob -t / 10."""

    temperature, stop_ids = 1.0, (0,)

    def score(self, pairs: Any, *, temperature: float | None = None, weights: str = "current") -> Any:
        assert weights == "reference"
        assert all(response for _, response in pairs)
        return [tuple(-token / 10 for token in response) for _, response in pairs]

    def judge(self, questions: Sequence[JudgeQuestion]) -> list[float]:
        return PhraseJudge(phrases=(("7", 2.0), ("GO 1", 0.5)))(questions)

    def text(self, ids: Sequence[int]) -> str:
        return " ".join(map(str, ids))


def draw(*_: object) -> np.random.Generator:
    raise AssertionError("nothing is drawn")


GROUPS = [[rollout(0, (5, 6), ()), rollout(1, (7,))], [rollout(2, (8,))]]


def test_the_reference_is_asked_about_all_responses_at_once() -> None:
    info_of_groups = ReferenceScore()(GROUPS, Scripted(), draw=draw)  # type: ignore[arg-type]
    logps = [[[info["reference_logp"] for info in steps] for steps in group] for group in info_of_groups]
    assert logps == [[[pytest.approx(-1.1), 0.0], [-0.7]], [[-0.8]]]


def test_a_judge_is_asked_about_responses_or_actions() -> None:
    info = JudgeScore()(GROUPS, Scripted(), draw=draw)  # type: ignore[arg-type]
    assert info == [[[{"judge_score": 0.0}] * 2, [{"judge_score": 2.0}]], [[{"judge_score": 0.0}]]]
    info = JudgeScore(about="action", info_key="polite")(GROUPS, Scripted(), draw=draw)  # type: ignore[arg-type]
    assert info[0][0] == [{"polite": 0.0}, {"polite": 0.5}]


def test_a_judge_of_phrases_counts_each_once() -> None:
    judge = PhraseJudge(phrases=(("please", 1.0), ("no", -0.25)))
    questions = [JudgeQuestion(task=TASK, context="", answer=text) for text in ("Please, PLEASE", "no, please", "yes")]
    assert judge(questions) == [1.0, 0.75, 0.0]
    strict = PhraseJudge(phrases=(("please", 1.0),), ignores_case=False)
    assert strict(questions) == [0.0, 1.0, 0.0]


def test_a_judge_without_phrases_is_refused() -> None:
    with pytest.raises(ConfigError, match="phrases"):
        PhraseJudge(phrases=())


# The KL in the reward


def test_divergence_from_the_reference_is_taken_off_the_reward() -> None:
    # Sampled with log-prob -0.5 - 0.5 = -1, the reference says -1.5: half a nat likelier, at 0.1 a nat.
    one = rollout(0, (5, 6), info={"reference_logp": -1.5})
    (shaped,) = shape_group([one], [ReferenceKl(weight=0.1)])
    assert [step.shaped for step in shaped.steps] == [pytest.approx(-0.05)]
    assert [step.reward for step in shaped.steps] == [0.0]


def test_what_another_policy_sampled_keeps_its_reward() -> None:
    one = replace(rollout(0, (5, 6), info={"reference_logp": -1.5}), off_policy=True)
    assert ReferenceKl(weight=0.1)([one]) == [(0.0,)]
    assert shape_group([one], [ReferenceKl(weight=0.1)]) == [one]


def test_without_the_info_key_the_shaper_says_what_to_add() -> None:
    with pytest.raises(RecordError) as raised:
        ReferenceKl(weight=0.1)([rollout(3, (5,))])
    assert str(raised.value) == (
        "task 'q', rollout 3, step 0: it has no step info 'reference_logp', which the shaper reference_kl reads; add "
        'scorers = ["reference_score"] to [algorithm]'
    )


def test_without_log_probs_the_shaper_says_so() -> None:
    step = Step(index=0, response_ids=(5,), info={"reference_logp": -1.0})
    with pytest.raises(RecordError, match="the log-probs of its sampled tokens were not recorded"):
        ReferenceKl(weight=0.1)([Trajectory(id="0", task=TASK, rollout=0, steps=(step,))])


# What a run can give


def test_token_credit_without_the_measure_that_it_reads_is_refused_before_a_model_loads() -> None:
    for name, info_key, kind in (
        ("spo_chain", "segment_ends", "segment_values"),
        ("spae", "potential_ends", "answer_potential"),
        ("after_vsrm", "line_accuracy", "forced_answers"),
        ("dcpo", "logp_cold", "tempered_score"),
        ("verl", "effective_rank", "effective_rank"),
        ("prorag", "judged_ends", "judged_segments"),
        ("rank_grpo", "end_token", "item_tokens"),
    ):
        whole = methods.build(name).model_copy(update={"judge": PhraseJudge(phrases=(("a", 1.0),))})
        check_scorers(whole)
        for measures in (None, (ReferenceScore(),), (JudgeScore(),)):
            with pytest.raises(ConfigError) as raised:
                check_scorers(whole.model_copy(update={"scorers": measures}))
            assert f"reads the info value {info_key!r}, which nothing here writes; add the scorer {kind!r} to" in str(
                raised.value
            )
        # A scorer that does not say what it writes may write anything.
        check_scorers(whole.model_copy(update={"scorers": (Wants(what="score"),)}))


class Wants(Part, slot="scorer"):
    what: str

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({self.what})

    def __call__(self, groups: Any, tools: Any, *, draw: Any) -> list[Any]:
        raise AssertionError("never asked")


def algorithm(*scorers: Any, **fields: Any) -> Algorithm:
    return Algorithm(advantage=methods.grpo().advantage, scorers=scorers, **fields)


def test_needs_that_nothing_gives_are_refused_before_a_model_loads() -> None:
    check_scorers(algorithm(Wants(what="score"), ReferenceScore()))
    check_scorers(Algorithm(advantage=methods.grpo().advantage))
    with pytest.raises(ConfigError) as raised:
        check_scorers(algorithm(Wants(what="scores")))
    assert str(raised.value) == (
        "algorithm.scorers: Wants(what='scores') needs 'scores', which nothing here gives; did you mean 'score'? "
        "(8 are valid)"
    )
    with pytest.raises(ConfigError) as raised:
        check_scorers(algorithm(JudgeScore()))
    assert str(raised.value) == "algorithm.scorers: JudgeScore asks a judge, and there is none; give algorithm.judge"
    check_scorers(algorithm(JudgeScore(), judge=PhraseJudge(phrases=(("a", 1.0),))))


def test_an_algorithm_without_measures_says_nothing_of_them_in_its_configuration() -> None:
    assert {"scorers", "judge"}.isdisjoint(methods.grpo().config())
    made = algorithm("reference_score")
    assert made.config()["scorers"] == [{"kind": "reference_score", "by_token": False}]
    assert Algorithm(**made.config()) == made
