"""What a model may say to the environments that judge in their own process: nothing runs, nothing takes for ever."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.data.records import Task
from groupwise.envs import Bfcl, Countdown, Gem, Openenv, RankedLists, SearchQa, Storefront, Textarena, WorkedSums
from groupwise.envs.bfcl.services import MAX_CALLS, Call, read_calls
from groupwise.envs.kit.answers import Form, find_last_boxed, find_tagged_parts, read_answer
from groupwise.envs.kit.packages import find_eval_calls, refuse_eval
from groupwise.envs.search_qa.environment import exact_match, f1
from groupwise.system.errors import ConfigError, EnvironmentFault

MEGABYTES = 10_000_000
AT_MOST_SECONDS = 20.0
"""Far more than a pass over ten megabytes takes on a busy machine, far less than a pass over each of their tags."""


def hostile_texts(there: Path) -> Iterator[str]:
    code = f"__import__('os').system('touch {there}')"
    for frame in (
        "{}",
        "[{}]",
        "<answer>{}</answer>",
        "<search>{}</search>",
        "search[{}]",
        "click[{}]",
        "\\boxed{{{}}}",
    ):
        yield from (
            frame.format(text) for text in (code, f"open('{there}', 'w')", "().__class__.__bases__[0]", "\ud800")
        )
        yield from (frame.format(text) for text in ("9**9**9**9", "\0", "(" * 5000, "[" * 5000, "-" * 5000 + "1"))
        yield from (frame.format(text) for text in ("x" * MEGABYTES, "9" * 5000, " " * 100_000, "{" * 5000))


def no_success(part: Any, task: Task, there: Path) -> None:
    started = time.monotonic()
    for text in hostile_texts(there / "X"):
        outcome = part.open(task).act(text)
        assert outcome.success is not True
        assert outcome.reward <= 0.0
    assert list(there.iterdir()) == []
    assert time.monotonic() - started < 5 * AT_MOST_SECONDS


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "part",
    [Countdown(), WorkedSums(), RankedLists(), Storefront(num_products=20)],
    ids=["countdown", "worked_sums", "ranked_lists", "storefront"],
)
def test_ours_take_them_for_actions_like_others(part: Any, tmp_path: Path) -> None:
    if isinstance(part, Storefront):
        pytest.importorskip("bm25s", reason="the extra `webshop` is not installed")
    no_success(part, part.task_set("train")[0], tmp_path)


def test_search_takes_them_for_words(tmp_path: Path) -> None:
    pytest.importorskip("bm25s", reason="the extra `search` is not installed")
    part = SearchQa()
    no_success(part, part.task_set("train")[0], tmp_path)
    long = "the " * 1_000_000
    assert not exact_match(long, ["Amber Sea"])
    assert f1(long, ["Amber Sea"]) == 0.0


def test_a_server_is_sent_them_as_text() -> None:
    serve = pytest.importorskip("websockets.sync.server", reason="the extra `openenv` is not installed").serve
    heard: list[str] = []

    def answer(connection: Any) -> None:
        for said in connection:
            message = json.loads(said)
            heard.append(message["data"].get("message", ""))
            shown = {"observation": {"text": "A hall."}, "reward": 0.0, "done": False}
            is_deep = heard[-1] == "deep"
            connection.send("[" * 100_000 if is_deep else json.dumps({"type": "observation", "data": shown}))

    with serve(answer, "127.0.0.1", 0, max_size=2**24) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        part = Openenv(url=f"http://127.0.0.1:{server.socket.getsockname()[1]}", world="hall", text_field="text")
        task = part.task_set("train")[0]
        texts = ["__import__('os').system('true')", "\ud800 half", "\0", "(" * 10_000, "x" * 1_000_000]
        for text in texts:
            assert part.open(task).act(text).success is not True
        assert [text for text in heard if text] == texts
        with pytest.raises(EnvironmentFault, match="which is not OpenEnv's protocol"):
            part.open(task).act("deep")
        server.shutdown()


@pytest.mark.parametrize(
    ("kind", "id"),
    [
        *((Textarena, name) for name in ("FrozenLake-v0", "GuessTheNumber-v0", "Sudoku-v0", "LogicPuzzle-v0")),
        *((Gem, f"game:{name}-v0-easy") for name in ("GuessTheNumber", "Mastermind", "Sudoku", "Sokoban")),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_games_of_packages_are_given_what_their_patterns_can_bear(kind: Any, id: str, tmp_path: Path) -> None:
    pytest.importorskip({Textarena: "textarena", Gem: "gem"}[kind])
    part = kind(id=id, num_train=1, num_validation=1, num_test=1)
    task = next(chain.from_iterable(part.task_set(split) for split in ("train", "validation", "test")))
    for text in hostile_texts(tmp_path / "X"):
        assert part.open(task).act(text).success is not True
    assert list(tmp_path.iterdir()) == []


class TestCalls:
    @pytest.mark.parametrize(
        "said",
        [
            "__import__('os').system('true')",
            "().__class__()",
            "cd(folder=__import__('os').getcwd())",
            "cd(folder=open('x', 'w'))",
            "cd(**{'folder': 'x'})",
            "(lambda: 1)()",
            "cd(folder=9**9**9**9)",
            "cd(folder='x' * 10**10)",
            f"cd(folder={'9' * 5000})",
            f"power(base={'9' * 4000}, exponent=900)",
            f'{{"name": "mean", "arguments": {{"numbers": [[{"9" * 4000}]]}}}}',
            f'{{"name": "cd", "arguments": {{"folder": {"[" * 30}{"]" * 30}}}}}',
            f"cd(folder={'[' * 150}1{']' * 150})",
            "[" + "ls()," * (MAX_CALLS + 1) + "]",
            "x" * MEGABYTES,
            "(" * 10_000,
            "cd('\0')",
        ],
    )
    def test_what_is_not_a_call_with_plain_values_is_none(self, said: str) -> None:
        assert read_calls(said) is None

    def test_calls_within_the_bounds_are_read(self) -> None:
        assert read_calls("[" + "ls()," * MAX_CALLS + "]") == (Call(name="ls"),) * MAX_CALLS
        nested = read_calls('{"name": "echo", "arguments": {"content": [[["a"]]]}}')
        assert nested == (Call(name="echo", named={"content": [[["a"]]]}),)


class TestServices:
    @pytest.fixture
    def opened(self) -> Any:
        pytest.importorskip("bfcl_eval", reason="pip install 'groupwise[bfcl]' and bfcl-eval to call its functions")
        part = Bfcl()
        tasks = [task for split in ("train", "test") for task in part.task_set(split)]
        return part.open(next(task for task in tasks if "GorillaFileSystem" in part.open(task)._services.instances))

    @pytest.mark.parametrize(
        "said",
        [
            "__init__()",
            "_load_scenario(scenario={})",
            "__class__()",
            "_navigate_to_directory('x')",
            "__getattribute__('x')",
        ],
    )
    def test_no_call_reaches_what_is_not_public(self, opened: Any, said: str) -> None:
        before = opened._services.digest()
        outcome = opened.act(said)
        assert not outcome.accepted
        assert "is not defined" in outcome.observation.text
        assert opened._services.digest() == before

    def test_half_a_character_in_a_name_is_written_down(self, opened: Any) -> None:
        outcome = opened.act('{"name": "touch", "arguments": {"file_name": "\\ud800"}}')
        outcome.observation.text.encode()
        assert opened.act("ls()").observation.text.encode()

    def test_folders_that_hold_each_other_end_the_rollout(self, opened: Any) -> None:
        opened.act("mkdir('p')")
        # Each time a folder that holds what was there before twice: copies share what they hold, the ways to it double.
        twice = "[cp('p', 'q'), mkdir('r'), cp('p', 'r'), cp('q', 'r'), rm('p'), rm('q'), mv('r', 'p')]"
        started = time.monotonic()
        with pytest.raises(EnvironmentFault, match="the services have more than 20000 files and folders"):
            _ = [opened.act(twice) for _ in range(35)]
        assert time.monotonic() - started < AT_MOST_SECONDS


class TestScan:
    def test_a_game_that_evaluates_is_refused_by_name(self, tmp_path: Path) -> None:
        (tmp_path / "env.py").write_text("import re\nX = re.compile('x')\ndef step(action):\n    return eval(action)\n")
        with pytest.raises(ConfigError) as raised:
            refuse_eval("textarena", "Sums-v0", tmp_path)
        assert str(raised.value) == (
            "textarena 'Sums-v0': its code may run text from the model (env.py:4: eval); choose another one, or "
            "report it to the package"
        )

    def test_one_that_compiles_patterns_is_not(self, tmp_path: Path) -> None:
        (tmp_path / "env.py").write_text("import re, subprocess\nX = re.compile('x')\n")
        assert find_eval_calls(tmp_path) == ()

    @pytest.mark.parametrize(
        "code",
        [
            "from builtins import eval as e\ne('1')",
            "f = eval\nf('1')",
            "import subprocess\nsubprocess.run('x', shell=True)",
            "import subprocess as s\ns.call('x')",
            "from subprocess import call\ncall('x')",
            "import os\nos.system('x')",
            "def broken(:",
        ],
    )
    def test_no_other_way_of_saying_it_is_let_through(self, tmp_path: Path, code: str) -> None:
        (tmp_path / "below").mkdir()
        (tmp_path / "below" / "rules.py").write_text(code)
        assert find_eval_calls(tmp_path)


OLD_TAGS = re.compile(r"<\s*(search|answer)\s*>(.*?)<\s*/\s*\1\s*>", re.DOTALL | re.IGNORECASE)
PIECES = st.sampled_from(
    [
        "<answer>",
        "</answer>",
        "< Answer >",
        "< / answer >",
        "<search>",
        "</search>",
        "<answer",
        ">",
        "<",
        "/",
        " x ",
        "\n",
    ]
)


class TestLinear:
    @given(st.lists(PIECES, max_size=14).map("".join))
    def test_parts_between_tags_are_those_of_the_pattern(self, text: str) -> None:
        parts = [(match[1].lower(), match[2]) for match in OLD_TAGS.finditer(text)]
        assert list(find_tagged_parts(text, "search", "answer")) == parts

    @pytest.mark.parametrize("form", ["tags", "boxed", "last_number", "last_line", "whole"])
    @pytest.mark.parametrize(
        "unit",
        [
            "<answer>",
            "</answer>",
            "<answer",
            "< ",
            "\\boxed{",
            "\\ ",
            "\\boxed ",
            "{",
            "}",
            "9",
            "9,",
            "-",
            "1.",
            "1/",
            "\n",
            " ",
        ],
    )
    def test_a_text_of_one_thing_is_read_in_one_pass(self, form: Form, unit: str) -> None:
        started = time.monotonic()
        read_answer(unit * (1_000_000 // len(unit)), form)
        assert time.monotonic() - started < AT_MOST_SECONDS, "a pass for each tag takes hours"

    def test_a_search_for_tags_is_one_pass(self) -> None:
        started = time.monotonic()
        for unit in ("<search>", "<search><answer>", "< search", "<search></answer>"):
            list(find_tagged_parts(unit * (1_000_000 // len(unit)), "search", "answer"))
        assert time.monotonic() - started < AT_MOST_SECONDS

    def test_boxes_are_read_as_before(self) -> None:
        assert find_last_boxed(r"a \boxed{1} b \ boxed {2{3}{4}} c") == "2{3}{4}"
        assert find_last_boxed(r"\boxed{1} \boxed{2") == ""
