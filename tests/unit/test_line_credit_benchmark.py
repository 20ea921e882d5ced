"""The benchmark of credit inside an answer: its tools are those of the policy whose truth is known."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from benchmarks.line_credit import trained_model
from benchmarks.line_credit.measure import LineNumbers, correlate, measure
from benchmarks.line_credit.scripted_sums import ScriptedSums
from benchmarks.line_credit.slipping_policy import SlippingPolicy
from groupwise.engines.engine import Request
from groupwise.envs import WorkedSums
from groupwise.rollout.scorers import Continuation
from groupwise.training.config.run_file import load_run
from groupwise.training.loop import train
from groupwise.training.open_run import open_run
from tests.equivalence.example_runs import EXAMPLES, overrides_of

PART, POLICY = WorkedSums(num_terms=4), SlippingPolicy(slip=0.2, slip_at_carry=0.4)
TASKS = PART.task_set("test")[:2]


def make_sums() -> ScriptedSums:
    return ScriptedSums(PART, POLICY, TASKS)


def test_recorded_log_probs_are_those_of_the_policy() -> None:
    sums = make_sums()
    step = sums.rollout(TASKS[1], 0, np.random.default_rng(0)).steps[0]
    assert sums.score([(step.prompt_ids, step.response_ids)]) == [pytest.approx(step.logp_behaviour)]
    uncertain = [place for place, logp in enumerate(step.logp_behaviour) if logp < 0]
    assert [sums.pieces(step.response_ids)[place - 1] for place in uncertain] == ["=", "=", "=", "answer"]


def test_going_on_from_a_prefix_comes_to_its_chance() -> None:
    sums, terms = make_sums(), TASKS[0].payload["terms"]
    slipped = terms[0] + terms[1] + 1
    forced = sums.encode(f"{terms[0]} + {terms[1]} = {slipped}")
    played = sums.play([Continuation(task=TASKS[0], forced=forced, seed=seed) for seed in range(600)])
    chance = POLICY.chance_of_right(terms, (slipped,))
    share = np.mean([trajectory.scores["success"] for trajectory in played])
    assert abs(share - chance) < 4 * math.sqrt(chance * (1 - chance) / 600)
    assert all(trajectory.steps[0].response_ids[: len(forced)] == forced for trajectory in played)


def test_an_answer_after_a_stub_is_that_of_the_head() -> None:
    sums, terms = make_sums(), TASKS[0].payload["terms"]
    prompt = (*sums.rollout(TASKS[0], 0, np.random.default_rng(0)).steps[0].prompt_ids, *sums.encode("answer"))
    chances = POLICY.answer_chances(terms, ())
    (scored,) = sums.score([(prompt, sums.encode(str(sum(terms))))])
    assert math.exp(scored[0]) == pytest.approx(chances[sum(terms)])
    (cold,) = sums.generate([Request(prompt_ids=prompt, seed=0, max_tokens=4, temperature=0.1)])
    (hot,) = sums.generate([Request(prompt_ids=prompt, seed=0, max_tokens=4, temperature=2.0)])
    assert cold.entropy[0] < hot.entropy[0]


def test_the_truth_correlates_with_itself_and_a_constant_with_nothing() -> None:
    lines = LineNumbers(
        true=np.array([0.1, -0.5, 0.2, 0.3]), answer=np.array([0, 0, 1, 1]), task=np.array([0, 0, 1, 1])
    )
    for within in (False, True):
        assert correlate(2 * lines.true, lines, within=within)["r"] == pytest.approx(1.0)
        assert correlate(np.ones(4), lines, within=within) == {"r": 0.0, "low": 0.0, "high": 0.0}
    assert correlate(np.array([1.0, 1.0, 2.0, 2.0]), lines, within=True)["r"] == 0.0


def test_every_method_is_measured_and_the_finer_segments_say_more() -> None:
    methods = measure(3, 4)["methods"]
    fine, coarse = (methods[f"spo_chain, {words}"] for words in ("1 uncertain token", "5 uncertain tokens"))
    assert fine["within_answers"]["r"] > coarse["within_answers"]["r"]
    assert methods["dr_grpo"]["within_answers"]["r"] == 0.0
    assert methods["dr_grpo"]["sampled_for_each_token"] == 0.0 < fine["sampled_for_each_token"]


def test_a_trained_model_is_gone_on_from_at_each_line(tmp_path: Path) -> None:
    example = EXAMPLES / "worked_sums.toml"
    run = open_run(load_run(example, overrides=[*overrides_of(example), "training.updates=1"]), tmp_path)
    train(run)
    result = trained_model.measure(run, num_tasks=2, num_rollouts=2, continuations=4)
    assert result["answers"] == 4
    assert result["continuations"] == 4
    assert 0.0 <= result["max_correlation"] <= 1.0
    assert all(-1.0 <= row["all_lines"]["r"] <= 1.0 for row in result["methods"].values())
