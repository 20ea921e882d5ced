"""The public suite: our methods pass every case, the cases can fail, and the page is up to date."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from conformance import run
from conformance.case import Case
from conformance.cases import CASES
from conformance.page import page
from conformance.subjects import Subject, load
from conformance.subjects.ours import Ours
from tests.conformance import wrong_subjects
from tests.conformance.wrong_subjects import Distorted, SinglePrecision

METHODS = {
    "grpo", "dr_grpo", "rloo", "reinforce_pp", "reinforce_pp_baseline", "gigpo", "hgpo", "gagpo", "hgae", "salt",
    "mc_grpo", "ngrpo", "dgpo", "a_grae", "mars", "flow_grpo", "step_grpo",
}  # fmt: skip
PAGE = Path(__file__).parents[2] / "conformance" / "README.md"
BY_NAME = {case.name: case for case in CASES}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_our_methods_pass(case: Case) -> None:
    outcome = run.put(case, Ours())

    assert outcome.verdict == "pass", f"found {outcome.actual}, expected {outcome.expected}: {case.why}"


def test_there_are_at_least_sixty_cases_with_names_of_their_own() -> None:
    assert len(CASES) >= 60
    assert len(BY_NAME) == len(CASES)


def test_every_method_has_a_case() -> None:
    assert {case.method for case in CASES} == METHODS


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_case_is_well_formed(case: Case) -> None:
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", case.name)
    assert case.why.endswith(".")
    assert "\n" not in case.why
    assert len({len(column) for column in case.columns.values()}) == 1
    assert case.trap is None or 1 <= case.trap <= 24


WRONG: dict[str, tuple[Subject, list[str], str]] = {
    # name: the subject, cases that must catch it, and a case that it passes all the same
    "single precision": (
        SinglePrecision(),
        [
            "fourteen-equal-shaped-rewards-get-zero",
            "a-constant-group-of-every-size-from-2-to-64-gets-zero",
            "a-constant-group-gets-zero-to-the-last-bit",
            "ten-million-added-to-every-reward-changes-nothing",
        ],
        "two-of-eight-correct-gives-the-published-z-scores",
    ),
    "time is row order": (
        Distorted(wrong_subjects.time_is_row_order, ("hgpo", "gigpo")),
        [
            "shuffled-rows-keep-their-credit-under-hgpo",
            "shuffled-rows-keep-their-credit-bit-for-bit-under-hgpo",
            "steps-handed-over-last-first-keep-their-returns-and-history",
            "shuffled-rows-keep-their-credit-under-gigpo",
            "a-missing-step-breaks-the-history",
        ],
        "three-routes-under-hgpo-with-z-scores",
    ),
    "a lone rollout keeps its reward": (
        Distorted(wrong_subjects.lone_keeps_its_reward, ("grpo", "dr_grpo", "rloo")),
        [
            "a-lone-rollout-gets-zero",
            "a-lone-rollout-gets-zero-without-a-deviation",
            "a-lone-rollout-has-no-others-to-average",
        ],
        "a-lone-rollout-leaves-other-groups-alone",
    ),
    "rows are rollouts": (
        Distorted(wrong_subjects.rows_are_rollouts, ("grpo", "dr_grpo", "rloo", "reinforce_pp_baseline")),
        [
            "a-two-step-win-and-a-twenty-step-loss-are-compared-as-two",
            "the-baseline-of-a-two-step-win-and-a-twenty-step-loss-is-one-half",
            "leaving-one-out-leaves-out-the-rollout-not-the-row",
            "the-group-baseline-before-whitening-is-over-rollouts",
            "a-step-in-three-parts-keeps-its-credit-under-rloo",
        ],
        "two-of-eight-correct-with-each-left-out",
    ),
    "states have no task": (
        Distorted(wrong_subjects.states_have_no_task, ("hgpo", "gigpo", "step_grpo", "mars")),
        [
            "equal-states-of-two-tasks-are-not-compared-under-gigpo",
            "equal-states-of-two-tasks-are-not-compared-under-hgpo",
            "equal-states-of-two-tasks-are-not-compared-under-step-grpo",
            "rewards-are-centred-game-by-game-and-credit-over-all-games",
        ],
        "three-routes-under-gigpo-with-z-scores",
    ),
    "the deviation of a population": (
        Distorted(wrong_subjects.deviation_of_a_population, ("grpo",)),
        ["two-of-eight-correct-gives-the-published-z-scores", "the-deviation-is-that-of-a-sample"],
        "fourteen-equal-shaped-rewards-get-zero",
    ),
    "a penalty before discounting": (
        Distorted(wrong_subjects.penalty_before_discounting, ("hgpo",)),
        ["a-penalty-is-not-discounted-back-under-hgpo", "the-size-of-the-penalty-is-an-option"],
        "all-well-formed-responses-are-as-good-as-no-column",
    ),
    "none is a state": (
        Distorted(wrong_subjects.none_is_a_state, ("hgpo", "gigpo", "step_grpo")),
        [
            "two-missing-states-are-not-equal-under-gigpo",
            "two-missing-states-are-not-equal-under-step-grpo",
            "no-state-column-leaves-nothing-of-hgpo",
            "a-missing-state-breaks-the-history-of-later-steps",
        ],
        "three-routes-under-hgpo-with-z-scores",
    ),
    "segments are steps": (
        Distorted(wrong_subjects.segments_are_steps, ("gigpo", "hgpo")),
        ["a-step-in-three-parts-keeps-its-credit-under-gigpo", "a-step-in-three-parts-keeps-its-credit-under-hgpo"],
        "three-routes-under-gigpo-with-z-scores",
    ),
}


@pytest.mark.parametrize(
    ("subject", "name"),
    [pytest.param(subject, name, id=name) for subject, names, _ in WRONG.values() for name in names],
)
def test_a_wrong_subject_fails_the_case_that_targets_it(subject: Subject, name: str) -> None:
    outcome = run.put(BY_NAME[name], subject)

    assert outcome.verdict == "fail"
    assert outcome.expected != "an answer", f"it crashed instead of answering: {outcome.actual}"


@pytest.mark.parametrize(("subject", "name"), [pytest.param(s, n, id=i) for i, (s, _, n) in WRONG.items()])
def test_a_wrong_subject_is_right_where_its_mistake_does_not_show(subject: Subject, name: str) -> None:
    assert run.put(BY_NAME[name], subject).verdict == "pass"


class Refusing:
    """Cannot be asked anything."""

    title, versions = "refusing", {}

    def supports(self, *_: object) -> str | None:
        return "not built"


class Raising(Refusing):
    """Raises on everything."""

    title = "raising"

    def supports(self, *_: object) -> str | None:
        return None

    def advantage(self, *_: object) -> list[float]:
        raise RuntimeError("no memory.\nTraceback ...")


def test_what_cannot_be_asked_is_no_failure() -> None:
    assert run.put(CASES[0], Refusing()) == run.Outcome(
        name=CASES[0].name, verdict="cannot be asked", reason="not built"
    )


def test_an_exception_is_a_failure_with_its_first_line() -> None:
    assert run.put(CASES[0], Raising()) == run.Outcome(
        name=CASES[0].name, verdict="fail", actual="RuntimeError: no memory", expected="an answer"
    )


def test_an_unknown_subject_is_named_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="subject 'verll' is not known; choose one of ours, verl_core_algos, trl_grpo"):
        load("verll")


def test_the_command_records_a_run_and_prints_each_case(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = tmp_path / "ours.json"

    assert run.main(["--subject", "ours", "--case", "a-lone-*", "--out", str(result), "--strict"]) == 0

    record = json.loads(result.read_text())
    names = [case.name for case in CASES if case.name.startswith("a-lone-")]
    assert [outcome["name"] for outcome in record["cases"]] == names
    assert {outcome["verdict"] for outcome in record["cases"]} == {"pass"}
    assert capsys.readouterr().out.count("\npass") == len(names) - 1


def test_strict_turns_a_failure_into_the_exit_status(capsys: pytest.CaptureFixture[str]) -> None:
    subject = "tests.conformance.test_conformance:Raising"

    assert run.main(["--subject", subject, "--case", "a-lone-rollout-gets-zero", "--strict"]) == 1
    assert "found RuntimeError: no memory, expected an answer" in capsys.readouterr().out


def test_the_page_counts_by_kind_and_lists_failures_and_reasons() -> None:
    records = [run.put_all(CASES, f"tests.conformance.test_conformance:{name}") for name in ("Raising", "Refusing")]
    laws = sum(case.kind == "law" for case in CASES)

    text = page(records)

    assert f"| raising | law | 0 | {laws} | 0 |" in text
    assert f"| refusing | law | 0 | 0 | {laws} |" in text
    assert f"- `{CASES[0].name}` (law): found RuntimeError: no memory, expected an answer." in text
    assert f"- refusing: not built ({len(CASES)} cases)." in text


def test_the_written_page_knows_every_case_and_our_success() -> None:
    text = PAGE.read_text()
    laws = sum(case.kind == "law" for case in CASES)

    for case in CASES:
        assert f"| {case.name.replace('-', ' ')} | {case.method} | {case.kind} |" in text, "run conformance.with_peers"
    assert re.search(rf"\| groupwise \S+ \| law \| {laws} \| 0 \| 0 \|", text)
    assert re.search(rf"\| groupwise \S+ \| convention \| {len(CASES) - laws} \| 0 \| 0 \|", text)
