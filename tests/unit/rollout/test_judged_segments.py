"""What a judge is asked about the pieces of responses, and what the rules among the judges go by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from groupwise import RecordError, Step, Task, Trajectory, methods
from groupwise.envs.small.lookup import Lookup
from groupwise.envs.small.worked_sums import WorkedSums
from groupwise.rollout.judges import CheckedLines, CheckedSteps, JudgeQuestion
from groupwise.rollout.scorers import JudgedSegments, check_scorers
from groupwise.system.errors import ConfigError

WORDS = ["", "a", "b", ";", "1", "2", "3", "+", "=", "answer", "6", "5"]


def rollout(*steps: Step, task: Task | None = None) -> Trajectory:
    return Trajectory(id="0", task=task or Task(id="q"), rollout=0, steps=steps)


def step(text: str, *, forced: int = 0, index: int = 0, **fields: Any) -> Step:
    ids = tuple(WORDS.index(word) for word in text.split())
    return Step(index=index, observation=f"room {index}", response_ids=ids, forced=forced, **fields)


class Asking:
    """Tools that keep the questions; the judge says how long an answer is, or what it is told to say."""

    def __init__(self, judge: Any = None) -> None:
        self.questions: list[JudgeQuestion] = []
        self._judge = judge or (lambda questions: [float(len(question.answer)) for question in questions])

    def judge(self, questions: Sequence[JudgeQuestion]) -> list[float]:
        self.questions += questions
        return self._judge(questions)  # type: ignore[no-any-return]

    def text(self, ids: Sequence[int]) -> str:
        return " ".join(WORDS[token] for token in ids)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [WORDS[token] for token in ids]


def measure(part: JudgedSegments, groups: Any, tools: Asking) -> Any:
    return part(groups, tools, draw=None)  # type: ignore[arg-type]


def test_without_separators_every_response_is_one_segment() -> None:
    tools = Asking()
    groups = [[rollout(step("a ; b", info={"known": 1}), step("a", index=1))], [rollout(step(""))]]
    assert measure(JudgedSegments(), groups, tools) == [
        [[{"judged_ends": [3], "judged_scores": [5.0]}, {"judged_ends": [1], "judged_scores": [1.0]}]],
        [[{"judged_ends": [], "judged_scores": []}]],
    ]
    first, second = tools.questions
    assert (first.context, first.answer, first.said, first.info) == ("room 0", "a ; b", "", {"known": 1})
    assert (second.context, second.answer) == ("room 1", "a")


def test_segments_end_with_separators_and_know_what_was_said_before() -> None:
    tools, part = Asking(), JudgedSegments(separators=(";",))
    ((info,),) = measure(part, [[rollout(step("b ; a ; b a ; b", forced=2))]], tools)
    assert info == [{"judged_ends": [2, 5, 6], "judged_scores": [3.0, 5.0, 1.0]}]
    assert [(question.said, question.answer) for question in tools.questions] == [
        ("b ;", "a ;"),
        ("b ; a ;", "b a ;"),
        ("b ; a ; b a ;", "b"),
    ]


def test_where_nothing_was_said_nobody_is_asked() -> None:
    tools = Asking(lambda questions: pytest.fail("asked"))
    assert measure(JudgedSegments(), [[rollout(step(""))]], tools) == [[[{"judged_ends": [], "judged_scores": []}]]]


def test_a_method_that_asks_a_judge_is_refused_without_one() -> None:
    with pytest.raises(ConfigError, match="asks a judge, and there is none; give"):
        check_scorers(methods.prorag())
    check_scorers(methods.prorag().model_copy(update={"judge": CheckedSteps()}))


def ask(**fields: Any) -> JudgeQuestion:
    return JudgeQuestion(**{"task": Task(id="q"), "context": "", "answer": ""} | fields)


CALL, OTHER = {"name": "search", "arguments": {"x": 1}}, {"name": "search", "arguments": {"x": 2}}


@pytest.mark.parametrize(
    ("info", "has_passed"),
    [
        ({"checks": {"read": True}}, True),
        ({"checks": {"read": True, "fits": True, "right": False}}, False),
        ({"checks": {"read": True, "fits": True}, "calls": [CALL], "gold_calls": [OTHER, CALL]}, True),
        ({"checks": {"read": True, "fits": True}, "calls": [CALL], "gold_calls": [OTHER]}, False),
        ({"checks": {"read": True, "fits": True}, "calls": [CALL], "gold_calls": []}, False),
        ({"checks": {"read": True, "fits": True}, "calls": [CALL]}, True),
        ({"checks": {"read": True, "fits": False}, "calls": [CALL]}, False),
    ],
)
def test_checked_steps_pass_by_what_the_environment_tells(info: dict[str, Any], has_passed: bool) -> None:
    assert CheckedSteps()([ask(info=info)]) == [2.0 if has_passed else -2.0]
    assert CheckedSteps(passed=1.0, failed=0.0)([ask(info=info)]) == [float(has_passed)]


def test_an_expert_of_lookup_passes_every_step_and_a_detour_does_not() -> None:
    part = Lookup(hops=2, num_people=4, max_steps=6)
    world = part.open(part.task_set("train")[0])
    needed = world.expert()
    detours = [
        action for action in world.observe().admissible or () if action.startswith("search") and action != needed
    ]
    outcomes = [world.act(detours[0])]
    while (action := world.expert()) is not None:
        outcomes.append(world.act(action))
    scores = CheckedSteps()([ask(info=outcome.info) for outcome in outcomes])
    assert scores == [-2.0, *[2.0] * (len(outcomes) - 1)]


def test_a_world_that_tells_no_checks_is_named() -> None:
    with pytest.raises(RecordError) as raised:
        CheckedSteps()([ask(info={"exact": True})])
    assert str(raised.value) == (
        "task 'q': a step has no info value 'checks', which the judge checked_steps reads; use an environment that "
        "tells it, or another judge"
    )


SUM = Task(id="sum", payload={"terms": [1, 2, 3]})


@pytest.mark.parametrize(
    "text",
    [
        "1 + 2 = 3 ; 3 + 3 = 6 ; answer 6",
        "1 + 2 = 2 ; 2 + 3 = 5 ; answer 5",
        "1 + 2 = 2 ; 3 + 3 = 6 ; answer 6",
        "1 + 2 = 3 ; answer 6",
        "a b ; answer 6",
        "answer 5",
    ],
)
def test_lines_are_judged_as_worked_sums_checks_them(text: str) -> None:
    tools = Asking(CheckedLines())
    ((info,),) = measure(JudgedSegments(separators=(";",)), [[rollout(step(text), task=SUM)]], tools)
    world = WorkedSums(num_terms=4)
    task = world.task_set("train")[0]
    own = Task(id=task.id, env=task.env, split=task.split, payload={**task.payload, "terms": [1, 2, 3]})
    checked = world.open(own).act(text).info
    assert info[0]["judged_scores"] == [float(is_right) for is_right in checked["lines_right"]]
    assert info[0]["judged_ends"] == checked["line_ends"]


def test_a_stray_sign_belongs_to_the_line_before_it() -> None:
    tools = Asking(CheckedLines())
    ((info,),) = measure(JudgedSegments(separators=(";",)), [[rollout(step("1 + 2 = 3 ; ; a"), task=SUM)]], tools)
    assert info == [{"judged_ends": [6, 7, 8], "judged_scores": [1.0, 1.0, 0.0]}]


def test_other_tasks_have_no_lines_to_check() -> None:
    with pytest.raises(RecordError, match=r"task 'q' has no numbers to add \(`terms`\), which the judge checked_lines"):
        CheckedLines()([ask(answer="1 + 2 = 3")])
