"""Questions over documents: a search by hand, the score, our corpus, the user's files and what is wrong with them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise import ConfigError, FileError, RecordError
from groupwise.envs import SPLITS, SearchQa, check_environment
from groupwise.envs.kit.bm25 import Bm25
from groupwise.envs.search_qa import environment as search_qa
from groupwise.envs.search_qa.environment import exact_match, f1, normalise, read_corpus, read_questions

DOCUMENTS = [
    {"title": "Salt Road", "text": "Salt Road is a novel by Edith Flint."},
    {"title": "Edith Flint", "text": "Edith Flint was born in Lowick."},
    {"title": "Lowick", "text": "Lowick lies on the River Elsin. " + "word " * 300},
    {"title": "Stanwell", "text": "Stanwell is known for cider."},
]
QUESTION = {
    "question": "Where was the author of Salt Road born?",
    "answers": ["Lowick", "the town of Lowick"],
    "titles": ["Salt Road", "Edith Flint"],
}
OTHERS = [
    {"question": "What is Stanwell known for?", "answers": "cider", "split": "validation"},
    {"question": "On which river lies Lowick?", "golden_answers": ["Elsin", "River Elsin"], "split": "test"},
]


@pytest.fixture
def part(tmp_path: Path) -> SearchQa:
    return write_part(tmp_path)


def write_part(folder: Path, **fields: Any) -> SearchQa:
    lines(folder / "documents.jsonl", DOCUMENTS)
    lines(folder / "questions.jsonl", [{**QUESTION, "split": "train"}, *OTHERS])
    paths = {"documents": str(folder / "documents.jsonl"), "questions": str(folder / "questions.jsonl")}
    return SearchQa(**paths, **fields)


def lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    return path


def test_without_the_package_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bm25s", None)
    search_qa.read_corpus.cache_clear()  # an index that another test built would need no package
    part = SearchQa()
    with pytest.raises(ConfigError) as raised:
        part.open(part.task_set("test")[0]).act("<search>x y z</search>")
    assert str(raised.value) == (
        "the environment 'search_qa' needs a package that is not installed; pip install 'groupwise[search]'"
    )


class TestAnRollout:
    @pytest.fixture(autouse=True)
    def packages(self) -> None:
        pytest.importorskip("bm25s")

    def test_two_searches_and_an_answer_by_hand(self, tmp_path: Path) -> None:
        part = write_part(tmp_path, num_results=1)
        (task,) = part.task_set("train")
        environment = part.open(task)
        first = environment.observe()
        assert (first.goal, first.text, first.state_key) == (QUESTION["question"], "Nothing is known yet.", "")
        shown = environment.act("I look it up. <search>salt road</search>").observation
        assert shown.text == (
            "<information>Doc 1 (Title: Salt Road) Salt Road is a novel by Edith Flint.</information>"
        )
        assert environment.act("<search>Edith Flint</search>").observation.state_key == "Edith Flint; Salt Road"
        last = environment.act("< answer > the lowick . < / answer >")
        assert (last.observation.text, last.reward, last.success, last.terminated) == ("Right.", 1.0, True, True)

    def test_what_is_shown_is_limited(self, tmp_path: Path) -> None:
        part = write_part(tmp_path, num_results=2, num_words=8)
        shown = part.open(part.task_set("train")[0]).act("<search>lowick</search>").observation.text
        assert shown == (
            "<information>Doc 1 (Title: Edith Flint) Edith Flint was born in Lowick. Doc 2 (Title: Lowick) Lowick lies "
            "on the River Elsin. word word</information>"
        )

    def test_a_search_without_a_hit_and_talk_without_tags(self, part: SearchQa) -> None:
        environment = part.open(part.task_set("train")[0])
        nothing = environment.act("<search>zzz</search>")
        assert (nothing.accepted, nothing.observation.state_key) == (True, "")
        assert nothing.observation.text == "<information>Nothing was found.</information>"
        for talk in ("search salt road", "<search></search>", "<search>x</answer>", "<answer> </answer>"):
            outcome = environment.act(talk)
            assert (outcome.accepted, outcome.ended) == (False, False)
            assert outcome.observation.text.startswith("Nothing happens. Write <search>")

    def test_exact_match_and_f1_as_rewards(self, tmp_path: Path) -> None:
        for score, reward in (("exact", 0.0), ("f1", 2.0 * 2 / 3)):
            part = write_part(tmp_path, score=score, success_reward=2.0)
            outcome = part.open(part.task_set("train")[0]).act("<answer>Lowick perhaps</answer>")
            assert (outcome.success, outcome.reward) == (False, pytest.approx(reward))

    def test_the_key_is_what_was_found_in_any_order(self, tmp_path: Path) -> None:
        part = write_part(tmp_path, num_results=1)
        one, other = (part.open(part.task_set("train")[0]) for _ in range(2))
        for title in ("Salt Road", "Stanwell"):
            one.act(f"<search>{title}</search>")
        for title in ("Stanwell", "Salt Road", "Stanwell"):
            other.act(f"<search>{title}</search>")
        assert one.observe().state_key == other.observe().state_key == "Salt Road; Stanwell"

    def test_a_question_without_titles_is_searched_for_itself(self, part: SearchQa) -> None:
        environment = part.open(part.task_set("test")[0])
        assert environment.expert() == "<search>On which river lies Lowick?</search>"
        environment.act(environment.expert() or "")
        assert environment.expert() == "<answer>Elsin</answer>"
        assert environment.act("<answer>river elsin</answer>").success is True
        assert environment.expert() is None

    def test_the_expert_keeps_the_last_step_for_its_answer(self, tmp_path: Path) -> None:
        part = write_part(tmp_path, num_results=1, max_steps=2)
        environment = part.open(part.task_set("train")[0])
        environment.act(environment.expert() or "")
        assert environment.act(environment.expert() or "").success is True

    def test_documents_in_a_folder(self, tmp_path: Path) -> None:
        (tmp_path / "more").mkdir()
        (tmp_path / "Lowick.txt").write_text("A town.", encoding="utf-8")
        (tmp_path / "more" / "Elsin.md").write_text("A river.", encoding="utf-8")
        (tmp_path / "picture.png").write_bytes(b"\xff")
        assert [each.title for each in read_corpus(str(tmp_path)).search("a river", 5)] == ["Elsin"]

    def test_a_task_of_other_documents_is_refused(self, part: SearchQa) -> None:
        with pytest.raises(RecordError, match="was made for the documents"):
            SearchQa().open(part.task_set("train")[0])


class TestOurCorpus:
    @pytest.fixture(autouse=True)
    def packages(self) -> None:
        pytest.importorskip("bm25s")

    def test_every_rule_is_kept(self) -> None:
        results = check_environment(SearchQa(), tasks=8)
        assert [result.rule for result in results if result.status == "broken"] == []
        assert [result.rule for result in results if result.status == "not tested"] == [
            "admissible_actions_are_accepted"
        ]

    def test_every_question_is_answered_by_looking_up_its_documents(self) -> None:
        part = SearchQa()
        for split in SPLITS:
            for task in part.task_set(split):
                environment, shown = part.open(task), ""
                while not (outcome := environment.act(environment.expert() or "")).ended:
                    shown += outcome.observation.text
                assert outcome.success is True
                assert task.payload["answers"][0] in shown, "the documents say it"

    def test_most_questions_take_more_than_one_document(self) -> None:
        hops = [len(question.titles) for question in read_questions("")]
        assert [hops.count(number) for number in (1, 2, 3)] == [152, 304, 184]


def test_a_split_follows_from_the_words_of_a_question(tmp_path: Path) -> None:
    rows = [{"question": f"What is {number} and one?", "answers": [str(number + 1)]} for number in range(200)]
    shown = {each.question: each.split for each in read_questions(str(lines(tmp_path / "q.jsonl", rows)))}
    fewer = {each.question: each.split for each in read_questions(str(lines(tmp_path / "fewer.jsonl", rows[::3])))}
    assert fewer.items() <= shown.items()
    counts = {split: list(shown.values()).count(split) for split in SPLITS}
    assert counts["train"] > counts["test"] > 15
    assert counts["validation"] > 5


@pytest.mark.parametrize(
    ("answer", "right", "exact", "overlap"),
    [
        ("The Amber Sea", ["amber sea"], True, 1.0),
        ("amber", ["the Amber Sea"], False, 2 / 3),
        ("sea amber sea", ["amber sea"], False, 4 / 5),
        ("Oslo", ["Rome", "Oslo!"], True, 1.0),
        ("the", ["a"], True, 1.0),
        ("", ["Rome"], False, 0.0),
    ],
)
def test_scores_by_hand(answer: str, right: list[str], exact: bool, overlap: float) -> None:
    assert (exact_match(answer, right), f1(answer, right)) == (exact, pytest.approx(overlap))


@given(st.text(max_size=30), st.lists(st.text(max_size=30), min_size=1, max_size=3))
def test_what_matches_exactly_overlaps_wholly(answer: str, right: list[str]) -> None:
    assert 0.0 <= f1(answer, right) <= 1.0
    assert normalise(normalise(answer)) == normalise(answer)
    if exact_match(answer, right):
        assert f1(answer, right) == 1.0
    assert exact_match(answer, [*right, answer])


def test_search_ranks_by_words_shared_and_then_by_place() -> None:
    pytest.importorskip("bm25s")
    index = Bm25(["red apple", "green apple", "red red apple pie", "plum"], needed_by="x", extra="x")
    assert index.search("red", 9) == [2, 0]
    assert index.search("apple", 2) == [0, 1], "equal scores keep the order of the texts"
    assert index.search("the of", 9) == index.search("", 9) == index.search("?!", 9) == []


class TestBadFiles:
    def refusal(self, **fields: str) -> str:
        with pytest.raises((ConfigError, FileError)) as raised:
            SearchQa(**fields).task_set("train")  # type: ignore[arg-type]
        return str(raised.value)

    def test_missing_files(self, tmp_path: Path) -> None:
        assert self.refusal(documents="/nowhere") == (
            "search_qa: there is no '/nowhere'; set `documents` to a folder of .txt or .md files, or to a .jsonl file"
        )
        assert self.refusal(questions="/nowhere") == (
            "search_qa: there is no file '/nowhere'; set `questions` to a .jsonl file of questions"
        )
        assert self.refusal(documents=str(tmp_path)) == (
            f"search_qa: '{tmp_path}' has no documents; add .txt or .md files, or lines"
        )

    @pytest.mark.parametrize(
        ("field", "text", "said"),
        [
            ("documents", "{}\n", "file.jsonl:1: there is no `title` or no `text`; write both, or `contents`"),
            ("documents", "\n[1]\n", "file.jsonl:2: found list; a document is an object with named fields"),
            ("questions", "{\n", "file.jsonl:1: not JSON: Expecting property name enclosed in double quotes"),
            (
                "questions",
                '{"question": "x"}',
                "file.jsonl:1: there is no `question` or no `answers`; write both, answers as a list",
            ),
            (
                "questions",
                '{"question": "x", "answers": ["y"], "split": "tests"}',
                "file.jsonl:1: there is no split 'tests'; did you mean 'test'? Valid: test, train, validation",
            ),
            (
                "questions",
                '{"question": "x", "answers": ["y"]}\n{"question": "x", "answers": ["z"]}',
                "file.jsonl:2: the question 'x' occurs twice; list it once",
            ),
            ("questions", '{"question": "x", "answers": ["y"]}', "none of 1 questions is in the"),
        ],
    )
    def test_lines_that_say_something_else(self, tmp_path: Path, field: str, text: str, said: str) -> None:
        path = tmp_path / "file.jsonl"
        path.write_text(text, encoding="utf-8")
        assert said in self.refusal(**{field: str(path)})

    def test_bytes_that_are_no_text(self, tmp_path: Path) -> None:
        (tmp_path / "x.txt").write_bytes(b"\xff\xfe")
        assert self.refusal(documents=str(tmp_path)).endswith("byte 1 is not UTF-8; download the file again")


class TestInfo:
    @pytest.fixture(autouse=True)
    def packages(self) -> None:
        pytest.importorskip("bm25s")

    def test_by_hand(self, part: SearchQa) -> None:
        environment = part.open(part.task_set("train")[0])
        gold = {
            "gold_answer": "Lowick",
            "gold_documents": ["Salt Road", "Edith Flint"],
            "gold_entities": ["Edith Flint", "Lowick"],
        }
        searched = environment.act("Who wrote it? <search> Salt Road novel </search>")
        assert searched.info == gold | {
            "calls": [{"name": "search", "arguments": {"query": "Salt Road novel"}}],
            "num_calls": 1,
            "documents": ["Salt Road"],
            "entities": [],
            "checks": {"read": True, "fits": True},
        }
        thought = environment.act("It is by edith flint.")
        assert thought.info == gold | {
            "calls": [],
            "num_calls": 0,
            "entities": ["Edith Flint"],
            "checks": {"read": False},
        }
        answered = environment.act("<answer>The town of Lowick!</answer>")
        assert answered.info == gold | {
            "answer": "Lowick",
            "exact": True,
            "graded_match": 1.0,
            "calls": [],
            "num_calls": 0,
            "entities": ["Lowick"],
            "checks": {"read": True, "fits": True, "right": True},
        }, "another wording of a right answer is the gold answer"

    def test_a_near_miss_has_its_own_text_and_a_grade(self, part: SearchQa) -> None:
        info = part.open(part.task_set("train")[0]).act("<answer>Lowick Hall.</answer>").info
        assert (info["answer"], info["exact"], info["checks"]["right"]) == ("lowick hall", False, False)
        assert info["graded_match"] == pytest.approx(2 / 3)

    def test_without_titles_nobody_knows_what_leads_to_the_answer(self, part: SearchQa) -> None:
        info = part.open(part.task_set("test")[0]).act("<search>Lowick</search>").info
        assert info.keys() == {"gold_answer", "calls", "num_calls", "documents", "checks"}

    def test_a_fork_tells_the_same_info(self, part: SearchQa) -> None:
        environment = part.open(part.task_set("train")[0])
        assert environment.fork().act("<answer>x</answer>").info == environment.act("<answer>x</answer>").info
