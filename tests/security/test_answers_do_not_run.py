"""reasoning-gym: no answer runs, none spoils the verifier, and every other answer scores as the family scores it."""

from __future__ import annotations

import ast
import inspect
import json
import os
import random
import subprocess
import sys
import textwrap
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from groupwise.data.records import Task
from groupwise.envs import ReasoningGym
from groupwise.envs import reasoning_gym as reasoning_gym_clearance
from groupwise.envs.environment import Outcome
from groupwise.envs.reasoning_gym import COMPARING, EVALUATORS, GRAMMARS, JUDGE, READ_VERSIONS, WRITING, is_cleared
from groupwise.envs.verifier.verifier import find_verifier
from groupwise.system.errors import ConfigError

package = pytest.importorskip("reasoning_gym", reason="the extra `reasoning` is not installed")
from reasoning_gym.factory import DATASETS

GATED = sorted(set(GRAMMARS) - {"composite"})
UNREADABLE = {"countdown": 0.01, "puzzle24": 0.01}
"""What a family gives for an answer that it cannot read; the others give 0."""


@cache
def task_of(family: str) -> Task:
    """The family's first question, without the task sets around it."""
    kind, questions = find_verifier(JUDGE).ask({"family": family, "options": "{}", "seeds": [0]}, seconds=60.0)
    assert kind == "answered"
    payload = {"family": family, "question": questions[0][0], "answer": questions[0][1]}
    return Task.create(env="reasoning_gym", split="train", seed=0, payload=payload)


def answer(family: str, said: str) -> Outcome:
    return ReasoningGym(family=family).open(task_of(family)).act(f"<answer>{said}</answer>")


def process() -> int | None:
    popen = find_verifier(JUDGE)._popen
    return None if popen is None else popen.pid


HOSTILE = {
    "runs": "[__import__('os').system('touch {there}')]",
    "opens": "open('{there}', 'w')",
    "evaluates": "eval(\"open('{there}', 'w')\")",
    "climbs": "[c for c in ().__class__.__base__.__subclasses__() if c.__name__ == 'Popen'][0](['touch', '{there}'])",
    "sympifies": "sympify(\"open('{there}', 'w')\")",
    "symbol": "Symbol(\"open('{there}', 'w')\")",
    "lambda": "(lambda: open('{there}', 'w'))()",
    "walrus": "(x := open('{there}', 'w'))",
    "formatted": "f\"{{open('{there}', 'w')}}\"",
    "power": "9**9**9**9",
    "factorial": "factorial(factorial(99))",
    "shift": "1 << 10**10",
    "repeats": "['x'] * 10**10",
    "deep": "(" * 900 + "1" + ")" * 900,
    "signs": "-" * 1900 + "1",
    "half a character": "[\ud800]",
    "NUL": "[1,\0 2]",
}


@pytest.mark.parametrize("family", GATED)
def test_no_answer_runs_and_each_scores_as_one_that_cannot_be_read(family: str, tmp_path: Path) -> None:
    answer(family, "nothing")
    before = process()
    for name, hostile in HOSTILE.items():
        outcome = answer(family, hostile.replace("{there}", str(tmp_path / "X")).replace("{{", "{").replace("}}", "}"))
        assert (outcome.reward, outcome.success, outcome.note) == (UNREADABLE.get(family, 0.0), False, ""), name
    assert list(tmp_path.iterdir()) == []
    assert process() == before, "the grammar refused them; nothing had to be ended"


SCORER = "__import__('reasoning_gym').algorithmic.spiral_matrix.SpiralMatrixDataset"
POISON = (
    f"[setattr({SCORER}, 'score_answer', lambda *_: 1.0)]",
    "[__import__('reasoning_gym').games.countdown.__dict__.update(parse_expr=lambda text: 24)]",
    "__import__('sys').modules['reasoning_gym.dataset'].ProceduralDataset.__class__",
    "[setattr(type(__import__('reasoning_gym')), 'score_answer', 1)]",
    "[globals().update(eval=lambda text: [])]",
)


@pytest.mark.parametrize("family", ["spiral_matrix", "countdown"])
def test_no_answer_changes_what_later_ones_score(family: str) -> None:
    right = task_of(family).payload["answer"]
    for poison in POISON:
        answer(family, poison)
    assert not answer(family, "1 1 1").success
    assert answer(family, right).success


def is_in_the_question(node: ast.AST) -> bool:
    """Whether something is a place within the question that a scorer is given."""
    while isinstance(node, ast.Subscript | ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name) and node.id in ("entry", "metadata")


def test_a_scorer_that_writes_into_its_question_is_given_a_copy() -> None:
    writing = set()
    for family, (dataset, _) in DATASETS.items():
        for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(dataset.score_answer)))):
            if isinstance(node, ast.Assign | ast.AugAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                stores = any(isinstance(each, ast.Subscript) and is_in_the_question(each) for each in targets)
            else:
                changes = (
                    "append",
                    "pop",
                    "update",
                    "sort",
                    "remove",
                    "extend",
                    "clear",
                    "insert",
                    "setdefault",
                    "add",
                )
                is_change = isinstance(node, ast.Attribute) and node.attr in changes
                stores = is_change and isinstance(node, ast.Attribute) and is_in_the_question(node.value)
            writing |= {family} if stores else set()
    assert writing == WRITING


@pytest.mark.parametrize("family", sorted(DATASETS))
def test_every_family_of_the_installed_package_is_classified(family: str) -> None:
    assert is_cleared(family), f"{family} is not among the scorers that were read; read it, then say how it scores"
    assert (family in COMPARING) != (family in GRAMMARS)


EVALUATING = {"eval", "exec", "compile", "parse_expr", "sympify", "S", "__import__", "getattr", "literal_eval", "Poly"}
EVALUATING |= {"lambdify", "loads", "load", "open", "system", "Popen", "run", "nsimplify", "setrecursionlimit"}
READ = {
    "bitwise_arithmetic": {"eval"},  # of the question, in verify_solution and generate_problem
    "number_sorting": {"eval", "loads"},  # of the stored answer
    "propositional_logic": {"parse_expr"},  # a parser of its own
    "gsm_symbolic": {"getattr"},  # of generators, by number
    "list_functions": {"getattr"},
    "basic_arithmetic": {"eval"},  # of the question
    "codeio": {"exec", "open", "loads"},  # of the package's own programs; answers are JSON
    "bf": {"compile"},  # the package's compiler of its own programs
    "composite": {"open"},
    "word_ladder": {"open"},
    "group_anagrams": {"open", "loads"},
    "figlet_font": {"open", "loads"},
    "rush_hour": {"open"},
}
"""What the modules of categories that compare call, by somebody who looked: never with the answer, unless as JSON."""
JSON_ALONE = {"loads"}


@pytest.mark.parametrize("family", sorted(COMPARING & set(DATASETS)))
def test_a_family_that_is_said_to_compare_calls_nothing_that_evaluates(family: str) -> None:
    module = inspect.getmodule(DATASETS[family][0])
    assert module is not None
    called = set()
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.Call):
            function = node.func
            name = function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")
            is_pattern = isinstance(function, ast.Attribute) and getattr(function.value, "id", "") == "re"
            called |= set() if is_pattern else {name}
    assert called & EVALUATING <= READ.get(family, set()) | JSON_ALONE


def test_the_modules_that_evaluate_are_the_ones_whose_eval_is_replaced() -> None:
    literal = {family for family, grammar in GRAMMARS.items() if grammar == "literal"}
    assert {DATASETS[family][0].__module__ for family in literal} == set(EVALUATORS)


def variants(stored: str) -> list[str]:
    words = stored.split()
    rows = [line.split() for line in stored.split("\n")]
    numbers = [[int(cell) for cell in row] for row in rows] if "".join(words).isdigit() else []
    return [
        *(stored, f" {stored} ", stored[::-1], stored[:-1], f"about {stored}", f"({stored})", f"{stored} + C"),
        *(str(words), json.dumps(rows), str(list(stored)), "+".join(words), f"{stored}*1", f"{stored} - 0"),
        *(json.dumps(numbers), json.dumps(numbers[0] if numbers else numbers)),
    ]


TYPICAL = "1|[1, 2, 3]|[[0, 1], [1, 0]]|['a', 'b']|1 2 3|x**2 + C|2*x + 3|1/2|(3 + 4) * 5|-7|3.5|the answer is 12"
TYPICAL += "|sqrt(16) + 4|4!|2^3|3 == 3|()|None|True|1e5|0x10|½|6*4|sin(x) + c|exp(x)/2|log(x)|1_000|0.3[3]|pi|x = 3"


ORDERED = "polynomial_multiplication"
"""It draws from the order of a set, which is the verifier's only where hashes are."""


def same_scores(family: str, seed: int) -> int:
    """How many answers score through the verifier as the package scores them by itself; the others fail the test."""
    random.seed(seed)
    dataset = package.create_dataset(family, size=1, seed=seed)
    entry = dataset[0]
    request = {"family": family, "options": "{}", "seed": seed, "question": str(entry["question"]).strip()}
    tried = [*([] if entry["answer"] is None else variants(str(entry["answer"]))), *TYPICAL.split("|")]
    for said in tried:
        expected: tuple[str, Any]
        try:
            expected = "answered", float(dataset.score_answer(said, entry))
        except Exception as error:
            expected = "failed", f"raised {type(error).__name__}"
        kind, answer_given = find_verifier(JUDGE).ask({**request, "answer": said}, seconds=20.0)
        assert (kind, answer_given.partition(":")[0] if kind == "failed" else answer_given) == expected, said
    return len(tried)


@pytest.mark.parametrize("family", [*GATED, "chain_sum", "sudoku", "boxnet"])
@pytest.mark.filterwarnings("ignore")
def test_answers_score_as_the_package_scores_them(family: str) -> None:
    if family != ORDERED:
        assert same_scores(family, 1) > 25
        return
    code = f"from {__name__} import same_scores; assert same_scores({family!r}, 1) > 25"
    settings = os.environ | {"PYTHONHASHSEED": "0"}
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, env=settings)


@pytest.mark.slow
@pytest.mark.skipif(os.environ.get("PYTHONHASHSEED") != "0", reason="a few categories draw from the order of a set")
@pytest.mark.parametrize("family", sorted(set(DATASETS) - {"composite"}))
@pytest.mark.filterwarnings("ignore")
def test_every_family_scores_as_the_package_scores_it(family: str) -> None:
    assert same_scores(family, 2) > 25


class TestAnotherVersion:
    """A package that nobody has read: its scorers are held by the process alone, or refused."""

    @pytest.fixture(autouse=True)
    def unread(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(reasoning_gym_clearance, "package_digest", lambda: "another")

    def test_its_answers_are_judged_apart(self) -> None:
        assert not is_cleared("chain_sum")
        part = ReasoningGym(family="chain_sum", num_train=3, num_validation=1, num_test=1)
        task = part.task_set("train")[0]
        assert part.open(task).act(f"<answer>{task.payload['answer']}</answer>").success
        assert not part.open(task).act("<answer>nothing</answer>").success
        apart = find_verifier(JUDGE, apart=True)
        assert apart._popen is not None
        apart.close()

    def test_where_nothing_holds_them_they_are_refused_by_name(self, monkeypatch: pytest.MonkeyPatch) -> None:
        task = Task.create(env="reasoning_gym", payload={"question": "?", "answer": "1"})
        monkeypatch.setattr(reasoning_gym_clearance, "find_boundaries", lambda: frozenset({"limits", "files"}))
        said = (
            "reasoning_gym 'chain_sum': its scorer may evaluate the model's answers, and this system has no seccomp "
            f"to prevent it; install reasoning-gym=={max(READ_VERSIONS)}, whose scorers were reviewed, or use Linux"
        )
        for rollout in (
            lambda: ReasoningGym(family="chain_sum", num_train=4).task_set("train"),
            lambda: ReasoningGym(family="chain_sum").open(task),
        ):
            with pytest.raises(ConfigError) as raised:
                rollout()
            assert str(raised.value) == said


def test_what_was_read_needs_no_kernel_to_hold_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reasoning_gym_clearance, "find_boundaries", frozenset)
    assert answer("spiral_matrix", "[1]").reward == 0.0
