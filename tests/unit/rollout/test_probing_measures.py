"""Measures that look into an answer: where it is cut, what is asked there, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from groupwise import RecordError, Step, Task, Trajectory
from groupwise.data.records import StopReason
from groupwise.data.seeds import seed_of
from groupwise.engines.engine import Generation, Request
from groupwise.methods.after_vsrm import ForcedAnswers
from groupwise.methods.dcpo import TemperedScore
from groupwise.methods.spae import AnswerPotential
from groupwise.methods.spo_chain import SegmentValues
from groupwise.rollout.scorers import Continuation, cut_after_separators, cut_after_uncertain

WORDS = ["", "a", "b", ";", "answer", "9"]
SURE, UNSURE = -0.01, -1.0


def rollout(number: int, ids: tuple[int, ...], logps: tuple[float, ...] = (), **fields: Any) -> Trajectory:
    step = Step(
        index=0,
        reward=float(number),
        prompt_ids=(7, 7),
        response_ids=ids,
        logp_behaviour=logps or (UNSURE,) * len(ids),
        **{"info": {"gold_answer": "9"}, **fields},
    )
    task = Task(id=f"q{number // 2}")
    return Trajectory(id=str(number), task=task, rollout=number, steps=(step,), scores={"return": float(number)})


class Scripted:
    """Tools that answer by rule: a continuation earns a tenth of the tokens that it was given."""

    temperature, stop_ids = 0.5, (0,)

    def __init__(self, *, failing: int = -1) -> None:
        self.played: list[Continuation] = []
        self.requests: list[Request] = []
        self.temperatures: list[float | None] = []
        self.extra_tokens, self._failing = 0, failing

    def play(self, continuations: Sequence[Continuation], *, extra_tokens: int = 0) -> list[Trajectory]:
        self.played, self.extra_tokens = list(continuations), extra_tokens
        return [self._end(number, begun) for number, begun in enumerate(continuations)]

    def _end(self, number: int, begun: Continuation) -> Trajectory:
        has_failed = len(begun.forced) == self._failing
        return Trajectory(
            id=str(number),
            task=begun.task,
            rollout=number,
            steps=(Step(index=0),),
            stop=StopReason.ERROR if has_failed else StopReason.TERMINATED,
            scores={"return": len(begun.forced) / 10, "success": len(begun.forced) / 10},
        )

    def generate(self, requests: Sequence[Request]) -> list[Generation]:
        self.requests = list(requests)
        return [
            Generation(response_ids=(5, 0), logp=(0.0, 0.0), entropy=(0.2, 0.4 + number / 5), stopped=True, versions=())
            for number in range(len(requests))
        ]

    def score(self, pairs: Any, *, temperature: float | None = None, weights: str = "current") -> Any:
        self.temperatures.append(temperature)
        return [tuple(-0.1 * len(prompt) for _ in response) for prompt, response in pairs]

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [WORDS[token] for token in ids]

    def encode(self, text: str) -> tuple[int, ...]:
        return tuple(WORDS.index(word) for word in text.split())


def draw(*path: object) -> np.random.Generator:
    return np.random.default_rng(seed_of(0, *path))


@pytest.mark.parametrize(
    ("logps", "ends"),
    [
        ([UNSURE] * 5, [2, 4, 5]),
        ([UNSURE] * 4, [2, 4]),
        ([SURE] * 5, [5]),
        ([UNSURE, SURE, SURE, UNSURE, SURE], [4, 5]),
        ([UNSURE, SURE, SURE, SURE, UNSURE], [5]),
        ([], [0]),
    ],
)
def test_segments_have_equally_many_uncertain_tokens(logps: list[float], ends: list[int]) -> None:
    assert cut_after_uncertain(logps, max_probability=0.9, per_segment=2) == ends


@pytest.mark.parametrize(
    ("text", "options", "ends"),
    [
        ("a ; b ; answer 9", {}, [2, 4, 6]),
        ("a ; b ;", {}, [2, 4]),
        ("a b a", {}, [3]),
        ("; ; a b ;", {"min_tokens": 2}, [2, 5]),
        ("a ; a ; a ; a ; a ; a", {"max_segments": 3}, [4, 8, 11]),
        ("a ; a ; a", {"max_segments": 1}, [5]),
        ("", {}, [0]),
    ],
)
def test_lines_end_with_separators(text: str, options: dict[str, int], ends: list[int]) -> None:
    settings = {"min_tokens": 1, "max_segments": 16, **options}
    assert cut_after_separators(text.split(), separators=[";"], **settings) == ends


def test_segment_values_are_means_over_continuations_of_prefixes() -> None:
    tools, part = Scripted(), SegmentValues(uncertain_tokens=2, continuations=3)
    groups = [[rollout(0, (1, 2, 3, 1, 2)), rollout(1, (1, 2))], [rollout(2, (1, 2, 1), (UNSURE, UNSURE, SURE))]]
    info = part(groups, tools, draw=draw)
    assert info == [
        [
            [{"segment_ends": [2, 4, 5], "segment_values": [pytest.approx(0.2), pytest.approx(0.4)]}],
            [{"segment_ends": [2], "segment_values": []}],
        ],
        [[{"segment_ends": [2, 3], "segment_values": [pytest.approx(0.2)]}]],
    ]
    assert [begun.forced for begun in tools.played] == [(1, 2)] * 3 + [(1, 2, 3, 1)] * 3 + [(1, 2)] * 3
    assert len({begun.seed for begun in tools.played}) == 9
    assert tools.extra_tokens == 0


def test_a_boundary_where_every_continuation_failed_is_none() -> None:
    info = SegmentValues(uncertain_tokens=2, continuations=2)(
        [[rollout(0, (1, 2, 3, 1, 2))]], Scripted(failing=2), draw=draw
    )
    assert info == [[[{"segment_ends": [4, 5], "segment_values": [pytest.approx(0.4)]}]]]


def test_forced_tokens_are_part_of_the_prefix_and_of_no_segment() -> None:
    tools = Scripted()
    info = SegmentValues(uncertain_tokens=1, continuations=1)([[rollout(0, (5, 1, 2), forced=1)]], tools, draw=draw)
    assert info[0][0][0]["segment_ends"] == [1, 2]
    assert [begun.forced for begun in tools.played] == [(5, 1)]


def test_answers_are_forced_before_the_first_line_and_after_each_but_the_last() -> None:
    tools, part = Scripted(), ForcedAnswers(min_tokens=1, answers=2, answer_tokens=4)
    info = part([[rollout(0, (1, 3, 2, 3, 4, 5)), rollout(1, (1,))]], tools, draw=draw)
    first = {"line_token_ends": [2, 4, 6], "line_accuracy": [pytest.approx(v) for v in (0.1, 0.3, 0.5, 0.0)]}
    assert info == [[[first], [{"line_token_ends": [1], "line_accuracy": [pytest.approx(0.1), 1.0]}]]]
    assert [begun.forced for begun in tools.played] == [(4,)] * 2 + [(1, 3, 4)] * 2 + [(1, 3, 2, 3, 4)] * 2
    assert tools.extra_tokens == 5, "the stub and the answer"


def test_a_potential_is_made_of_how_sure_and_how_right() -> None:
    tools, part = Scripted(), AnswerPotential(probes=2)
    info = part([[rollout(0, (1, 3, 2, 3, 4, 5)), rollout(1, (1,))]], tools, draw=draw)
    # Probe n has mean entropy 0.3 + n / 10; two probes a line.
    confidence = [(math.exp(-0.3) + math.exp(-0.4)) / 2, (math.exp(-0.5) + math.exp(-0.6)) / 2]
    accuracy = [math.exp(-0.1 * len(prompt)) for prompt in ([7, 7, 1, 3, 4], [7, 7, 1, 3, 2, 3, 4])]
    phi = [1.5 * acc * conf + 0.5 * acc - conf for acc, conf in zip(accuracy, confidence, strict=True)]
    assert info == [
        [
            [{"potential_ends": [2, 4, 6], "potentials": [pytest.approx(level) for level in (*phi, phi[-1])]}],
            [{"potential_ends": [1], "potentials": [0.0]}],
        ]
    ]
    assert [request.prompt_ids for request in tools.requests] == [(7, 7, 1, 3, 4)] * 2 + [(7, 7, 1, 3, 2, 3, 4)] * 2
    assert {(request.temperature, request.max_tokens, request.stop_ids) for request in tools.requests} == {
        (0.6, 10, (0,))
    }
    assert tools.temperatures == [None], "the right answer is scored at the run's temperature"


def test_tempered_scores_are_taken_at_multiples_of_the_temperature() -> None:
    tools = Scripted()
    info = TemperedScore()([[rollout(0, (5, 1, 2), forced=1), rollout(1, ())]], tools, draw=draw)
    logps = [pytest.approx(-0.3), pytest.approx(-0.3)]
    assert info == [[[{"logp_hot": logps, "logp_cold": logps}], [{"logp_hot": [], "logp_cold": []}]]]
    assert tools.temperatures == [pytest.approx(0.6), pytest.approx(0.4)]


@pytest.mark.parametrize("part", [SegmentValues(), ForcedAnswers(), AnswerPotential()])
def test_rollouts_of_several_steps_are_refused(part: Any) -> None:
    long = Trajectory(id="0", task=Task(id="q"), rollout=0, steps=(Step(index=0), Step(index=1)))
    with pytest.raises(RecordError) as raised:
        part([[long]], Scripted(), draw=draw)
    assert str(raised.value) == (
        f"task 'q', rollout 0: it has 2 steps, but {part.config()['kind']} continues parts of a first response only; "
        "use it if a rollout is one response"
    )


def test_what_the_step_does_not_hold_is_asked_for() -> None:
    with pytest.raises(
        RecordError, match="the log-probs of its sampled tokens were not recorded, which segment_values"
    ):
        SegmentValues()(
            [[Trajectory(id="0", task=Task(id="q"), rollout=0, steps=(Step(index=0, response_ids=(1,)),))]],
            Scripted(),
            draw=draw,
        )
    with pytest.raises(RecordError, match="no text as the info value 'gold_answer', which answer_potential reads"):
        AnswerPotential()([[rollout(0, (1, 3, 2), info={})]], Scripted(), draw=draw)


def test_an_engine_without_entropies_cannot_say_how_sure_it_is() -> None:
    class Mute(Scripted):
        def generate(self, requests: Sequence[Request]) -> list[Generation]:
            return [Generation(response_ids=(5,), logp=(0.0,), entropy=(), stopped=True, versions=()) for _ in requests]

    with pytest.raises(RecordError, match="reads the entropies of sampled tokens, which the engine did not give"):
        AnswerPotential()([[rollout(0, (1, 3, 2))]], Mute(), draw=draw)


def test_recorded_steps_are_asked_about_with_nothing_to_ask() -> None:
    tools = Scripted()
    assert SegmentValues()([[rollout(0, (1, 2))]], tools, draw=draw) == [
        [[{"segment_ends": [2], "segment_values": []}]]
    ]
    assert tools.played == []
