"""The categories of reasoning-gym: generated questions, each family with its own verifier."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import fields
from functools import cache, lru_cache, partial
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, field_validator

from groupwise.data.records import Task
from groupwise.envs.kit.answers import ASKED, SENTENCES, Form, Question, QuestionEnvironment, open_question, say_answer
from groupwise.envs.kit.packages import report_missing_package
from groupwise.envs.kit.task_set import (
    SPLITS,
    Proposal,
    TaskSets,
    TaskSetSizes,
    build_task_sets,
    check_env,
    choose_split,
    task_set_sizes_of,
)
from groupwise.envs.kit.words import collect_vocabulary
from groupwise.envs.verifier.answer_grammars import guard_sympy, read_literal
from groupwise.envs.verifier.verifier import Verdict, Verifier, find_verifier
from groupwise.parts.part import Part
from groupwise.system.errors import ConfigError, RecordError, nearest
from groupwise.system.sandbox import find_boundaries

ENV = "reasoning_gym"
JUDGE = "groupwise.envs.reasoning_gym:make_judge"
OURS = ("seed", "size")
"""Options of every family that the task sets decide."""
FAR_APART = 1_000_003
"""Distance between the first questions of two seeds, so that they draw different ones."""

AT_ONCE = 32
"""Questions per request."""
MAKING_SECONDS = 300.0
"""CPU seconds for one request of questions."""


class ReasoningGym(Part, slot="env"):
    """A family of reasoning-gym, such as "chain_sum": single-turn questions with the family's own scorer.

    Source: Stojanovski et al. 2025, "Reasoning Gym", arXiv:2505.24760; the package is the extra `reasoning`.

    Choices: the reward is the family's score, also a partial one; `solved_at` sets the score of a success. A response
    without an answer is invalid. If the whole response is the answer, it must have the shape of the stored answer
    (`kit/answers.py`). Answers are never evaluated: a grammar reads them where a scorer would use `eval`. An answer
    outside the grammar gets the family's score for an unreadable one (see `is_cleared`). The verifier runs in its own
    process without rights. If it raises, breaks a rule or needs more than `verifier_seconds` of CPU time, the score is
    0 and the record says why. A question's text decides its split. Questions are made in that process too, since a few
    categories draw from the process-wide generator or from the order of a set. Task sets depend on the version of
    reasoning-gym, and perhaps on Python's, whose generator it uses: compare `task_set_hash`.
    """

    family: str
    """Name in reasoning-gym's registry."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Options of the family, such as how many terms a sum has."""
    seed: Annotated[int, Field(ge=0, le=1000)] = 0
    """Seed of the questions; it moves no question from one split to another."""
    num_train: Annotated[int, Field(ge=1, le=100_000)] = 1000
    """Tasks in the train set, if there are so many different ones."""
    num_validation: Annotated[int, Field(ge=1, le=100_000)] = 100
    """Tasks in the validation set."""
    num_test: Annotated[int, Field(ge=1, le=100_000)] = 200
    """Tasks in the test set."""
    form: Form = "tags"
    """Where a response has its answer; the instruction asks for it."""
    match_words: bool = False
    """Whether an answer with the stored one's words, in any case and spacing, counts as the stored one: for tokenizers
    that keep neither."""
    solved_at: Annotated[float, Field(gt=0, le=1)] = 1.0
    """The smallest score that is a success."""
    allow_partial: bool = True
    """Whether a lower score is rewarded too. Many categories give a partial score to any text that contains the answer;
    small models then learn to name many numbers."""
    verifier_seconds: Annotated[float, Field(gt=0)] = 5.0
    """CPU seconds for one check."""
    max_steps: Annotated[int, Field(ge=1)] = 1
    """An answer ends the rollout, so there is only one step."""

    @field_validator("options")
    @classmethod
    def _not_ours(cls, options: dict[str, Any]) -> dict[str, Any]:
        for name in OURS:
            if name in options:
                raise ValueError(
                    f"{name!r} cannot be set here, because the task sets set it; use seed, num_train, num_test"
                )
        try:
            json.dumps(options)
        except TypeError as error:  # a date of a TOML file, for one
            raise ValueError(f"{error}; give texts, numbers, lists and tables") from None
        return options

    def task_set(self, split: str) -> tuple[Task, ...]:
        return choose_split(self._build_task_sets(), split)

    def open(self, task: Task) -> QuestionEnvironment:
        check_env(task, ENV)
        require_boundary(self.family)
        stored = task.payload["answer"]
        question = Question(
            text=str(task.payload["question"]),
            stored=None if stored is None else str(stored),
            form=self.form,
            judge=partial(self._judge_answer, task),
            solved_at=self.solved_at,
            allow_partial=self.allow_partial,
            match_words=self.match_words,
        )
        return open_question(task, question, max_steps=self.max_steps)

    def vocabulary(self) -> tuple[str, ...]:
        tasks = [task for split in SPLITS for task in self._build_task_sets()[split]]
        texts = [task.payload["question"] for task in tasks]
        texts += [task.payload["answer"] for task in tasks if task.payload["answer"] is not None]
        return collect_vocabulary(texts, f"{self.instruction()} {SENTENCES} {say_answer('', self.form)}")

    def instruction(self) -> str:
        return f"Answer the question. {ASKED[self.form]}"

    def _build_task_sets(self) -> TaskSets:
        return _build_task_sets(
            self.family, json.dumps(self.options, sort_keys=True), self.seed, task_set_sizes_of(self)
        )

    def _judge_answer(self, task: Task, answer: str) -> Verdict:
        request = {
            "family": self.family,
            "options": json.dumps(self.options, sort_keys=True),
            "seed": task.seed,
            "question": task.payload["question"],
            "answer": answer,
        }
        return _find_verifier(self.family).judge(request, seconds=self.verifier_seconds)


def make_judge() -> Callable[[Mapping[str, Any]], Any]:
    """What runs inside the verifier's process: it makes questions, and scores an answer to a question made again."""
    import_module(PACKAGE)
    guard_sympy()
    for name in EVALUATORS:  # answers are read by a grammar and not evaluated
        import_module(name).__dict__["eval"] = read_literal
    return lambda request: _score_answer(request) if "answer" in request else _make_questions(request)


def _make_questions(request: Mapping[str, Any]) -> list[tuple[str, str | None]]:
    entries = [_make_question(request["family"], request["options"], seed)[1] for seed in request["seeds"]]
    return [
        (str(entry["question"]).strip(), None if entry["answer"] is None else str(entry["answer"])) for entry in entries
    ]


def _score_answer(request: Mapping[str, Any]) -> float:
    dataset, entry = _make_cached(request["family"], request["options"], request["seed"])
    if str(entry["question"]).strip() != request["question"]:
        raise RecordError(
            f"reasoning_gym {request['family']!r}: seed {request['seed']} now gives another question; use "
            "the options and the version of reasoning-gym that made the task"
        )
    if request["family"] in WRITING:  # the family changes the question: give it a copy
        entry = deepcopy(entry)
    return float(dataset.score_answer(request["answer"], entry))


def _find_verifier(family: str) -> Verifier:
    """A scorer that was not reviewed judges each answer in its own process, so none can affect the next one."""
    return find_verifier(JUDGE, apart=not is_cleared(family))


@cache
def _build_task_sets(family: str, options: str, seed: int, sizes: TaskSetSizes) -> TaskSets:
    if find_spec(PACKAGE) is None:
        raise report_missing_package(ENV, extra="reasoning")
    require_boundary(family)
    seen: set[str] = set()
    at_hand: list[tuple[str, str | None]] = []

    def propose(index: int) -> Proposal | None:
        number = seed * FAR_APART + index
        if index % AT_ONCE == 0:
            request = {"family": family, "options": options, "seeds": list(range(number, number + AT_ONCE))}
            kind, answer = _find_verifier(family).ask(request, seconds=MAKING_SECONDS)
            if kind == "fault":
                raise ConfigError(str(answer))
            if kind == "failed":
                raise ConfigError(
                    f"reasoning_gym {family!r}: making its questions {answer}; change the options or the family"
                )
            at_hand[:] = answer
        question, stored = at_hand[index % AT_ONCE]
        if question in seen:  # also with another answer it is the same question
            return None
        seen.add(question)
        payload = {"family": family, "question": question, "answer": stored}
        return Proposal(payload=payload, seed=number, tags=(family,))

    return build_task_sets(ENV, propose, sizes=sizes._asdict())


def _make_question(family: str, options: str, seed: int) -> tuple[Any, dict[str, Any]]:
    """A dataset of one question, and the question: it follows from the seed alone."""
    import reasoning_gym
    from reasoning_gym.factory import DATASETS

    if family not in DATASETS:
        raise ConfigError(f"reasoning_gym: there is no family {family!r}; {nearest(family, DATASETS)}")
    chosen = json.loads(options)
    names = {option.name for option in fields(DATASETS[family][1])} - set(OURS)
    for name in chosen:
        if name not in names:
            raise ConfigError(f"reasoning_gym {family!r}: there is no option {name!r}; {nearest(name, names)}")
    try:
        random.seed(seed)  # for those that draw from the process-wide generator; this process is the verifier's
        dataset = reasoning_gym.create_dataset(family, size=1, seed=seed, **chosen)
    except (AssertionError, TypeError, ValueError) as error:
        raise ConfigError(f"reasoning_gym {family!r}: invalid options {chosen}: {error}; change them") from None
    return dataset, dataset[0]


# The rollouts of a group ask about one question.
_make_cached = lru_cache(64)(_make_question)


# The reviewed scorers of reasoning-gym, and the grammars that replace evaluation.
#
# We read the scorers of all categories in the versions in `READ_VERSIONS`, with the functions they call. Most compare
# texts, numbers or JSON. Five evaluate the answer as Python, five give it to sympy; in the verifier's process a grammar
# reads it instead (`answer_grammars`). If any line of the package differs, its categories are not cleared.

PACKAGE = "reasoning_gym"
READ_VERSIONS = {"0.1.25": "2827d43e1825011663c8c7ccf5a0b72154f232b90053604276f80ea37dc6992f"}
"""Versions whose scorers were reviewed, with the digest of their code."""
GRAMMARS = {
    **dict.fromkeys(("binary_matrix", "n_queens", "number_sorting", "spiral_matrix", "string_insertion"), "literal"),
    **dict.fromkeys(("countdown", "intermediate_integration", "polynomial_multiplication"), "expression"),
    **dict.fromkeys(("puzzle24", "simple_integration"), "expression"),
    "composite": "those of the categories it is made of",
}
"""Families whose scorers would evaluate answers, and the grammar used instead."""
EVALUATORS = (
    "reasoning_gym.algorithmic.binary_matrix",
    "reasoning_gym.algorithmic.number_sorting",
    "reasoning_gym.algorithmic.spiral_matrix",
    "reasoning_gym.algorithmic.string_insertion",
    "reasoning_gym.games.n_queens",
)
"""Modules whose `eval` is replaced by a reader of literals; the others use sympy."""
_COMPARING = """
    ab acre advanced_geometry aiw arc_1d arc_agi base_conversion basic_arithmetic bf binary_alternation
    bitwise_arithmetic boxnet caesar_cipher calendar_arithmetic chain_sum circuit_logic codeio coin_flip
    color_cube_rotation complex_arithmetic count_bits count_primes course_schedule cryptarithm decimal_arithmetic
    decimal_chain_sum dice emoji_mystery family_relationships figlet_font fraction_simplification futoshiki game_of_life
    game_of_life_halting gcd graph_color group_anagrams gsm_symbolic isomorphic_strings jugs kakurasu knight_swap
    knights_knaves largest_island lcm leg_counting letter_counting letter_jumble list_functions mahjong_puzzle
    manipulate_matrix maze mini_sudoku modulo_grid needle_haystack number_filtering number_format number_sequence
    palindrome_generation palindrome_partitioning path_star polynomial_equations pool_matrix power_function
    prime_factorization products propositional_logic quantum_lock ransom_note rearc rectangle_count rotate_matrix
    rotten_oranges rubiks_cube rush_hour self_reference sentence_reordering shortest_path simple_equations
    simple_geometry sokoban spell_backward string_manipulation string_splitting string_synthesis sudoku survo syllogism
    time_intervals tower_of_hanoi tsumego word_ladder word_sequence_reversal word_sorting zebra_puzzles
    """
COMPARING = frozenset(_COMPARING.split())
"""Families whose scorers only compare; they evaluate nothing."""
WRITING = frozenset(("knight_swap",))
"""Families whose scorers change the question; they get a copy."""


def is_cleared(family: str) -> bool:
    """Whether the installed scorer of a family was reviewed and evaluates no answer."""
    return (family in COMPARING or family in GRAMMARS) and package_digest() in READ_VERSIONS.values()


def require_boundary(family: str) -> None:
    """Raise if a family's scorer was not reviewed and the system cannot isolate it."""
    if is_cleared(family) or "system calls" in find_boundaries():
        return
    raise ConfigError(
        f"reasoning_gym {family!r}: its scorer may evaluate the model's answers, and this system has no seccomp to "
        f"prevent it; install reasoning-gym=={max(READ_VERSIONS)}, whose scorers were reviewed, or use Linux"
    )


@cache
def package_digest() -> str:
    spec = find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        return ""
    folder = Path(next(iter(spec.submodule_search_locations)))
    digest = sha256()
    for path in sorted(folder.rglob("*.py"), key=lambda path: path.relative_to(folder).as_posix()):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(folder).as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()
