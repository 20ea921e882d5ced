"""The reasoning-gym adapter: task sets, scores as the categories give them, and faults as zeros with a reason."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import pytest

from groupwise.data.records import Task
from groupwise.envs import SPLITS, ReasoningGym, check_environment, task_set_hash
from groupwise.envs.environment import Expert
from groupwise.system.errors import ConfigError, EnvironmentFault

SUMS = ReasoningGym(family="chain_sum", options={"max_terms": 2, "max_digits": 2}, num_train=50, num_test=20)


def test_without_the_package_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    with pytest.raises(ConfigError) as raised:
        ReasoningGym(family="chain_sum", num_train=3).task_set("train")
    assert str(raised.value) == (
        "the environment 'reasoning_gym' needs a package that is not installed; pip install 'groupwise[reasoning]'"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seed": 3}, "'seed' cannot be set here, because the task sets set it; use seed, num_train, num_test"),
        ({"size": 3}, "'size' cannot be set here, because the task sets set it; use seed, num_train, num_test"),
        ({"a": {1}}, "Object of type set is not JSON serializable; give texts, numbers, lists and tables"),
    ],
)
def test_options_that_cannot_be_are_refused_before_anything_is_drawn(options: Any, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        ReasoningGym(family="chain_sum", options=options)
    assert message in str(raised.value)


class TestWithReasoningGym:
    @pytest.fixture(autouse=True)
    def package(self) -> Any:
        return pytest.importorskip("reasoning_gym", reason="the extra `reasoning` is not installed")

    def test_questions_are_the_familys_and_the_task_sets_fixed_disjoint_and_seeded(self, package: Any) -> None:
        assert [len(SUMS.task_set(split)) for split in SPLITS] == [50, 100, 20]
        questions = [task.payload["question"] for split in SPLITS for task in SUMS.task_set(split)]
        assert len(set(questions)) == 170
        for task in SUMS.task_set("test"):
            made = package.create_dataset("chain_sum", size=1, seed=task.seed, **SUMS.options)[0]
            assert (task.payload["question"], task.payload["answer"]) == (made["question"], made["answer"])
            assert task.tags == ("chain_sum",)
        other = SUMS.model_copy(update={"seed": 1})
        assert task_set_hash(other.task_set("test")) != task_set_hash(SUMS.task_set("test"))
        # Another seed draws other questions, and moves none from one split to another.
        tests = {task.payload["question"] for part in (SUMS, other) for task in part.task_set("test")}
        trains = {task.payload["question"] for part in (SUMS, other) for task in part.task_set("train")}
        assert not tests & trains

    def test_the_task_sets_are_the_ones_results_were_measured_on(self) -> None:
        # Provenance: printed by task_set_hash with reasoning-gym 0.1.25 under CPython 3.11.7.
        assert (
            task_set_hash(SUMS.task_set("test")) == "dc79cc4f3a252aacef73f0a3c5e6003b9a64a5233ba682b6f40fc62980efe984"
        )

    @pytest.mark.parametrize(
        "part",
        [
            SUMS,
            ReasoningGym(family="leg_counting", form="whole", num_train=50),
            ReasoningGym(family="syllogism", form="last_line", num_train=50),
            ReasoningGym(family="spell_backward", form="whole", num_train=20, num_validation=3, num_test=5),
            ReasoningGym(family="propositional_logic", num_train=20, num_validation=3, num_test=5),
        ],
        ids=lambda part: f"{part.family}, {part.form}",
    )
    def test_it_keeps_every_rule_of_environments(self, part: ReasoningGym) -> None:
        results = check_environment(part)
        assert [(result.rule, result.found) for result in results if result.status == "broken"] == []
        untested = {result.rule for result in results if result.status == "not tested"}
        no_expert = {"expert_succeeds"} if part.family == "propositional_logic" else set()
        single = {"admissible_actions_are_accepted", "state_key_has_no_counter_or_clock"}
        assert untested == single | no_expert, "answers are free, a question comes once, and some are not stored"

    def test_the_reward_is_the_familys_own_score(self, package: Any) -> None:
        part = ReasoningGym(family="basic_arithmetic", num_train=20, num_validation=3, num_test=5)
        task = part.task_set("train")[0]
        dataset = package.create_dataset("basic_arithmetic", size=1, seed=task.seed)
        stored = task.payload["answer"]
        for answer in (stored, f"about {stored}", "nothing"):
            outcome = part.open(task).act(f"<answer>{answer}</answer>")
            assert outcome.reward == dataset.score_answer(answer, dataset[0])
            assert outcome.success is (answer == stored)

    def test_a_partial_score_may_count_as_solved(self) -> None:
        part = SUMS.model_copy(update={"solved_at": 0.1})
        task = part.task_set("train")[0]
        response = f"<answer>it is {task.payload['answer']}</answer>"
        lenient, strict = part.open(task).act(response), SUMS.open(task).act(response)
        assert 0.1 < lenient.reward == strict.reward < 1.0
        assert (lenient.success, strict.success) == (True, False)

    def test_a_verifier_that_raises_is_a_zero_with_a_reason(self) -> None:
        part = ReasoningGym(family="prime_factorization", num_train=5, num_validation=3, num_test=3)
        outcome = part.open(part.task_set("train")[0]).act("<answer>two times three</answer>")
        assert (outcome.reward, outcome.success, outcome.accepted, outcome.terminated) == (0.0, False, True, True)
        assert (
            outcome.note == "the verifier raised ValueError: invalid literal for int() with base 10: 'two times three'"
        )

    def test_a_verifier_that_hangs_is_a_zero_with_a_reason(self) -> None:
        part = ReasoningGym(family="coin_flip", num_train=2, num_validation=1, num_test=1, verifier_seconds=0.5)
        outcome = part.open(part.task_set("train")[0]).act("<answer>1e99999999</answer>")
        assert (outcome.reward, outcome.success, outcome.accepted) == (0.0, False, True)
        assert outcome.note.startswith("the verifier gave no verdict within "), outcome.note

    @pytest.mark.parametrize("family", ["polynomial_multiplication", "list_functions"])
    def test_a_family_that_draws_from_what_is_shared_makes_the_same_questions_again(self, family: str) -> None:
        part = ReasoningGym(family=family, num_train=3, num_validation=1, num_test=1)
        for task in part.task_set("train"):
            environment: Any = part.open(task)
            assert environment.act(environment.expert()).success, "the verifier made the question again, and knew it"

    def test_a_task_of_other_options_is_a_fault_and_no_zero(self) -> None:
        task = SUMS.task_set("train")[0]
        other = SUMS.model_copy(update={"options": {"min_terms": 3}})
        with pytest.raises(EnvironmentFault) as raised:
            other.open(task).act("<answer>1</answer>")
        assert str(raised.value) == (
            f"reasoning_gym 'chain_sum': seed {task.seed} now gives another question; use the options and "
            "the version of reasoning-gym that made the task"
        )

    def test_a_question_without_a_stored_answer_has_no_expert(self) -> None:
        part = ReasoningGym(family="propositional_logic", num_train=5, num_validation=2, num_test=2)
        task = part.task_set("train")[0]
        assert task.payload["answer"] is None
        assert not isinstance(part.open(task), Expert)
        assert part.open(task).act("<answer>P</answer>").accepted

    def test_a_repeated_question_is_one_task(self) -> None:
        part = ReasoningGym(family="chain_sum", options={"max_terms": 2, "max_digits": 1})
        task_sets = {split: part.task_set(split) for split in SPLITS}
        assert sum(len(tasks) for tasks in task_sets.values()) <= 200, "two digits, plus or minus"
        assert len({task.payload["question"] for tasks in task_sets.values() for task in tasks}) == sum(
            len(tasks) for tasks in task_sets.values()
        )

    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            (
                {"family": "chain_sums"},
                "reasoning_gym: there is no family 'chain_sums'; did you mean 'chain_sum'? (",
            ),
            (
                {"family": "chain_sum", "options": {"max_term": 3}},
                "reasoning_gym 'chain_sum': there is no option 'max_term'; did you mean 'max_terms'? Valid: "
                "allow_negation, max_digits, max_terms, min_digits, min_terms",
            ),
            (
                {"family": "chain_sum", "options": {"min_terms": 9}},
                "reasoning_gym 'chain_sum': invalid options {'min_terms': 9}: ",
            ),
        ],
    )
    def test_what_does_not_fit_is_refused(self, fields: dict[str, Any], message: str) -> None:
        with pytest.raises(ConfigError) as raised:
            ReasoningGym(**fields).task_set("train")
        assert str(raised.value).startswith(message)

    def test_a_task_of_another_environment_is_refused(self) -> None:
        foreign: Task = replace(SUMS.task_set("train")[0], env="countdown")
        with pytest.raises(ValueError, match="belongs to the environment 'countdown', not 'reasoning_gym'"):
            SUMS.open(foreign)
