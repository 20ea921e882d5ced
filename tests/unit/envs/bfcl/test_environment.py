"""BFCL's multi-turn tasks: turns and checks by hand, agreement with the package's own executor and checker, task
sets."""

from __future__ import annotations

import decimal
import json
import time
from collections.abc import Iterator
from importlib.metadata import version
from random import Random
from typing import Any, get_args

import pytest

from groupwise import ConfigError, RecordError, Task
from groupwise.envs import SPLITS, Bfcl, Household, task_set_hash
from groupwise.envs.bfcl import environment as bfcl
from groupwise.envs.bfcl import services as bfcl_files
from groupwise.envs.bfcl.environment import NO_CALL, describe_functions
from groupwise.envs.bfcl.services import Call, Category, Services, play_answers, read_conversations

CATEGORIES: tuple[Category, ...] = get_args(Category)
CHECKER = "bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker"
EXECUTOR = "bfcl_eval.eval_checker.multi_turn_eval.multi_turn_utils"
# Provenance: printed by `task_set_hash(Bfcl().task_set(split))` with bfcl-eval 2026.3.23 under CPython 3.11.7.
GOLDEN = {
    "train": "1c0eb894265d0375be9a9e39929a5e9559af074614ed53136f89c10810c109f0",
    "validation": "6ebafb371fa4612933e15dc970e90633bef2c01bd498815f217a51b498d91883",
    "test": "7eda4dc2623f5f7393ac09fe4a1ab723d9df8a7857c18b1ccae4cfe580917b4a",
}


def test_without_the_package_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    bfcl_files.find_package_folder.cache_clear()
    bfcl_files.read_conversations.cache_clear()
    bfcl._build_task_sets.cache_clear()
    monkeypatch.setattr(bfcl_files, "find_spec", lambda name: None)
    with pytest.raises(ConfigError) as raised:
        Bfcl().task_set("train")
    assert str(raised.value) == (
        "the environment 'bfcl' needs a package that is not installed; pip install 'groupwise[bfcl]', then "
        "pip install --no-deps bfcl-eval"
    )


def test_a_task_of_another_environment() -> None:
    with pytest.raises(RecordError, match="belongs to the environment 'household'"):
        Bfcl().open(Household().task_set("test")[0])


def test_functions_in_words() -> None:
    document = {
        "name": "find",
        "parameters": {
            "properties": {"path": {"default": "."}, "name": {"default": "None"}, "a": {}},
            "required": ["a"],
        },
    }
    assert describe_functions([document, document], "names") == "find, find"
    assert describe_functions([document], "signatures") == "find(path=., name=None, a)"
    assert json.loads(describe_functions([document], "documents")) == document


class TestWithBfcl:
    @pytest.fixture(autouse=True)
    def _bfcl(self) -> None:
        pytest.importorskip("bfcl_eval", reason="pip install 'groupwise[bfcl]' and bfcl-eval to call its functions")
        pytest.importorskip("mpmath", reason="pip install 'groupwise[bfcl]'")
        bfcl_files.find_package_folder.cache_clear()

    def open_task(self, id: str, **fields: Any) -> Any:
        category = id.removeprefix("multi_turn_").rpartition("_")[0]
        part = Bfcl(categories=(category,), **fields)
        return part.open(next(task for task in all_tasks(part) if task.payload["task"] == id))

    def test_a_turn_by_hand(self) -> None:
        environment = self.open_task("multi_turn_base_0", turn_reward=0.25)
        first = environment.observe()
        assert first.text.startswith("User: Move 'final_report.pdf' within document directory to 'temp'")
        assert "mv(source, destination)" in first.goal
        assert first.admissible is None
        went = environment.act("cd(folder='document')")
        assert went.observation.text.endswith('\nResult: {"current_working_directory": "document"}')
        assert went.observation.text.startswith(first.text)
        moved = environment.act("[mkdir(dir_name='temp'), mv(source='final_report.pdf', destination='temp')]")
        assert moved.observation.text.splitlines()[-2:] == [
            "Result: None",
            "Result: {\"result\": \"'final_report.pdf' moved to 'temp/final_report.pdf'\"}",
        ]
        ended = environment.act("[]")
        assert (ended.reward, ended.success, ended.accepted) == (0.25, None, True)
        assert ended.observation.text.startswith("User: Perform a detailed search using grep")

    def test_facts_by_hand(self) -> None:
        environment = self.open_task("multi_turn_base_0")
        went = environment.act("cd('document')").info
        gold = went["gold_calls"]
        call = {"name": "cd", "arguments": {"folder": "document"}}
        assert went["calls"] == [call] == gold[:1], "by place or by name"
        assert [name["name"] for name in gold] == ["cd", "mkdir", "mv"]
        assert (went["num_calls"], went["turn"], went["num_turns"]) == (1, 0, 4)
        assert went["checks"] == {"read": True, "fits": True}
        odd = environment.act("[mkdir(1, 2, deep={3: (b'x', 1e999)}), pwd()]").info
        assert odd["calls"] == [
            {"name": "mkdir", "arguments": {"0": 1, "1": 2, "deep": {"3": ["b'x'", "inf"]}}},
            {"name": "pwd", "arguments": {}},
        ]
        assert odd["checks"] == {"read": True, "fits": False}
        assert environment.act("I am done").info["checks"] == {"read": False}
        for action in ("mkdir(dir_name='temp')", "mv(source='final_report.pdf', destination='temp')"):
            environment.act(action)
        ended = environment.act("[]").info
        assert (ended["turn"], ended["turns_passed"], ended["gold_calls"]) == (0, 1, gold)
        assert ended["checks"] == {"read": True, "fits": True, "right": True}
        failed = environment.act("[]").info
        assert (failed["turn"], failed["turns_passed"]) == (1, 1)
        assert failed["gold_calls"] != gold
        assert failed["checks"]["right"] is False

    def test_a_turn_that_changes_something_else_fails(self) -> None:
        environment = self.open_task("multi_turn_base_0")
        environment.act("cd(folder='document')")
        environment.act("mkdir(dir_name='tmp')")
        assert environment.expert() is None, "the answers lead elsewhere now"
        ended = environment.act("[]")
        assert (ended.terminated, ended.success, ended.reward) == (True, False, 0.0)
        assert "GorillaFileSystem does not match the state" in ended.note
        idle = self.open_task("multi_turn_base_0").act("[]")
        assert (idle.success, idle.note) == (False, NO_CALL)

    def test_a_turn_that_did_not_ask_fails(self) -> None:
        environment = self.open_task("multi_turn_base_1")
        environment.act("pwd()")
        ended = environment.act("[]")
        assert ended.success is False
        assert "does not contain all the ground truth response" in ended.note

    def test_reading_more_does_no_harm(self) -> None:
        environment = self.open_task("multi_turn_base_1")
        environment.act("pwd()")
        assert environment.expert() == "ls(a=True)"
        environment.act("ls(True)")
        assert environment.expert() == "[]", "the same argument by place"
        assert environment.act("[]").success is None

    @pytest.mark.parametrize(
        ("action", "message"),
        [
            ("I am done.", "Nothing happens."),
            ("fly(to='Rome')", "Result: Error during execution: name 'fly' is not defined"),
            ("cd()", "missing 1 required positional argument"),
            ("_load_scenario({})", "is not defined"),
        ],
    )
    def test_what_is_no_call_of_theirs_is_invalid(self, action: str, message: str) -> None:
        environment = self.open_task("multi_turn_base_0")
        before = environment.observe().state_key
        outcome = environment.act(action)
        assert not outcome.accepted
        assert message in outcome.observation.text
        if message == "Nothing happens.":
            assert outcome.observation.state_key == before

    def test_text_ends_the_turn_where_it_is_asked_to(self) -> None:
        outcome = self.open_task("multi_turn_base_0", text_ends_turn=True).act("I am done.")
        assert (outcome.terminated, outcome.success, outcome.note) == (True, False, NO_CALL)

    def test_the_words_of_an_answer_count_as_the_answer(self) -> None:
        plain, matched = (self.open_task("multi_turn_base_0", match_words=flag) for flag in (False, True))
        said = "cd ( folder = ' document ' )"
        assert "No such file or directory" in plain.act(said).observation.text
        assert '"document"' in matched.act(said).observation.text

    def test_long_results_are_cut_off(self) -> None:
        environment = self.open_task("multi_turn_base_1", result_characters=10, repeat_request=False)
        assert environment.act("ls(a=True)").observation.text == 'Result: {"current_ (cut off)'

    def test_functions_that_come_late(self) -> None:
        late = next(each for each in read_conversations("miss_func").values() if each.late)
        turn, documents = next(iter(late.late.items()))
        name = documents[0]["name"]
        environment = self.open_task(late.id, functions="names", max_steps=100)
        assert name not in environment.observe().goal.split(": ")[1].split(", ")
        for _ in range(turn):
            environment.act("[]") if not late.answers[environment._turn] else self.follow(environment)
        assert environment.observe().text.startswith(f"User: {bfcl.MORE_FUNCTIONS} Functions: {name}")

    def follow(self, environment: Any) -> None:
        turn = environment._turn
        while environment._turn == turn and not environment._progress.ended:
            environment.act(environment.expert())

    @pytest.mark.parametrize("category", CATEGORIES)
    def test_the_answers_succeed(self, category: Category) -> None:
        part = Bfcl(categories=(category,))
        tasks = all_tasks(part)
        assert len(tasks) == 200
        steps = []
        for task in tasks if category == "base" else tasks[::8]:
            environment = part.open(task)
            while (action := environment.expert()) is not None:
                outcome = environment.act(action)
                assert outcome.accepted, (task.payload["task"], action)
            assert outcome.success is True, task.payload["task"]
            steps.append(environment._progress.steps)
        assert max(steps) <= part.max_steps

    @pytest.mark.parametrize("id", [f"multi_turn_base_{number}" for number in range(0, 200, 9)])
    def test_verdicts_and_results_are_the_package_s(self, id: str) -> None:
        """Rollouts that leave a call out, do one twice, or do everything: ours against the package's own."""
        checker, executor = (pytest.importorskip(name) for name in (CHECKER, EXECUTOR))
        conversation = read_conversations("base")[id]
        for number, turns in enumerate(variations([list(turn) for turn in conversation.answers])):
            environment = self.open_task(id, max_steps=500)
            for turn in turns:
                for call in turn:
                    environment.act(call)
                ended = environment.act("[]")
                if ended.ended:
                    break
            entry = {"id": id, "initial_config": conversation.scenario, "involved_classes": list(conversation.classes)}
            decoded = [[[call] for call in turn] for turn in turns]
            truth = [list(turn) for turn in conversation.answers]
            expected = checker.multi_turn_checker(decoded, truth, entry, "multi_turn_base", f"ours_{number}")
            assert ended.success is expected["valid"], (number, expected)
            results, _ = executor.execute_multi_turn_func_call(
                [call for turn in turns for call in turn], conversation.scenario, list(conversation.classes),
                f"told_{number}", id,
            )  # fmt: skip
            assert environment._results == results[: len(environment._results)]

    def test_the_precision_of_the_process_stays(self) -> None:
        mpmath = pytest.importorskip("mpmath")
        services = Services(next(each for each in read_conversations("base").values() if "MathAPI" in each.classes))
        before = decimal.getcontext().prec, mpmath.mp.dps
        assert services.call(Call(name="square_root", values=(2, 5))).text == "{'result': Decimal('1.4142')}"
        services.call(Call(name="logarithm", values=(10.0, 2.0, 3)))
        assert (decimal.getcontext().prec, mpmath.mp.dps) == before

    @pytest.mark.parametrize(
        "call",
        [
            Call(name="power", values=(10, 10**10)),
            Call(name="square_root", named={"number": 2, "precision": 10**9}),
            Call(name="round_number", values=(5, -(10**9))),
        ],
    )
    def test_numbers_that_would_never_be_done_are_refused(self, call: Call) -> None:
        services = Services(next(each for each in read_conversations("base").values() if "MathAPI" in each.classes))
        started = time.perf_counter()
        assert services.call(call).text == "Error during execution: the number is too large"
        assert time.perf_counter() - started < 1

    def test_a_copy_goes_its_own_way(self) -> None:
        services = Services(read_conversations("base")["multi_turn_base_0"])
        before, twin = services.digest(), services.fork()
        twin.call(Call(name="touch", values=("new.txt",)))
        assert services.digest() == before == Services(read_conversations("base")["multi_turn_base_0"]).digest()
        assert twin.digest() != before
        twin.call(Call(name="rm", values=("new.txt",)))
        assert twin.digest() == before, "a state that comes again is the same state"

    def test_chances_are_part_of_the_state(self) -> None:
        services = Services(
            next(each for each in read_conversations("base").values() if "GorillaFileSystem" in each.classes)
        )
        chances = Random(3)
        services.instances["GorillaFileSystem"].chances = chances
        before = services.digest()
        assert services.fork().digest() == before
        chances.random()
        assert services.digest() != before

    def test_one_story_is_in_one_split_whatever_its_category(self) -> None:
        part = Bfcl(categories=CATEGORIES)
        splits: dict[int, set[str]] = {}
        for task in all_tasks(part):
            number = read_conversations(task.payload["category"])[task.payload["task"]].number
            splits.setdefault(number, set()).add(task.split)
        assert len(splits) == 200
        assert all(len(splits_there) == 1 for splits_there in splits.values())
        alone = {task.payload["task"]: task.split for task in all_tasks(Bfcl())}
        assert all(splits[int(id.rpartition("_")[2])] == {split} for id, split in alone.items())

    def test_task_sets_are_the_ones_results_were_measured_on(self) -> None:
        if version("bfcl-eval") != "2026.3.23":
            pytest.skip("the hashes are those of bfcl-eval 2026.3.23")
        assert {split: task_set_hash(Bfcl().task_set(split)) for split in SPLITS} == GOLDEN

    def test_a_conversation_of_another_version_is_refused(self) -> None:
        part = Bfcl()
        task = part.task_set("test")[0]
        changed = Task.create(env="bfcl", split="test", payload={**task.payload, "content": "0" * 16})
        with pytest.raises(RecordError, match="of another bfcl-eval version"):
            part.open(changed)

    def test_a_file_that_the_package_lacks_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        bfcl_files.read_conversations.cache_clear()
        monkeypatch.setattr(bfcl_files, "FILES", "BFCL_v9_multi_turn_{}.json")
        with pytest.raises(ConfigError, match=r"has no file BFCL_v9_multi_turn_base\.json; pip install"):
            read_conversations("base")

    def test_the_answers_of_a_task_are_played_once(self) -> None:
        assert play_answers("base", "multi_turn_base_3") is play_answers("base", "multi_turn_base_3")


def all_tasks(part: Bfcl) -> list[Task]:
    return [task for split in SPLITS for task in part.task_set(split)]


def variations(turns: list[list[str]]) -> Iterator[list[list[str]]]:
    """A rollout as the answers say it, and rollouts near it."""
    yield turns
    for turn in range(len(turns)):
        for place in range(len(turns[turn])):
            calls = turns[turn]
            yield [*turns[:turn], calls[:place] + calls[place + 1 :], *turns[turn + 1 :]]
            yield [*turns[:turn], [*calls[: place + 1], *calls[place:]], *turns[turn + 1 :]]
        yield [*turns[:turn], turns[turn][::-1], *turns[turn + 1 :]]
