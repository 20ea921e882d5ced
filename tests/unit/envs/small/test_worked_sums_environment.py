"""Worked sums: lines read and checked one by one, the info of an answer, and any text refused without harm."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise import ConfigError, Task
from groupwise.envs import WorkedSums
from groupwise.envs.kit.words import split_words
from groupwise.envs.small.worked_sums import check_answer, write_answer

TERMS = (4, 7, 2, 9)
many_terms = st.lists(st.integers(1, 9), min_size=4, max_size=10)


def task_of(*terms: int) -> Task:
    return Task.create(env="worked_sums", payload={"terms": list(terms)})


@pytest.mark.parametrize(
    ("answer", "total", "is_right", "is_on_track"),
    [
        ("4 + 7 = 11 ; 11 + 2 = 13 ; 13 + 9 = 22 ; answer 22", 22, "yyyy", "yyyy"),
        ("4+7=11\n11+2=13\n\n13+9=22;\nAnswer 22", 22, "yyyy", "yyyy"),
        ("4 + 7 = 12 ; 12 + 2 = 14 ; 14 + 9 = 23 ; answer 23", 23, "nyyy", "nnnn"),
        ("4 + 7 = 12 ; 12 + 2 = 13 ; 13 + 9 = 22 ; answer 22", 22, "nnyy", "nyyy"),  # the second slip mends the first
        ("4 + 7 = 11 ; 12 + 2 = 14 ; 14 + 9 = 23 ; answer 22", 22, "ynyn", "ynny"),  # a wrong copy; a lucky total
        ("4 + 7 = 11 ; 11 + 9 = 20 ; 20 + 2 = 22 ; answer 22", 22, "ynny", "ynyy"),  # another order than asked for
        ("4 + 7 = 11 ; answer 22", 22, "yy", "yy"),  # early: the rest was added in the head
        ("answer 22", 22, "y", "y"),
        ("4 + 7 = 11 ; hm ; 11 + 2 = 13 ; 13 + 9 = 22 ; answer 22", 22, "ynyyy", "ynyyy"),
        ("4 + 7 = 11 ; 11 + 2 = 13 ; 13 + 9 = 22 ; 22 + 1 = 23 ; answer 22", 22, "yyyny", "yyyny"),
        ("4 + 7 = 11 ; answer 22 ; 11 + 2 = 13", None, "yny", "yny"),  # the total is the last word
        ("", None, "", ""),
        ("answer", None, "n", "n"),
    ],
)
def test_lines_are_checked_one_by_one(answer: str, total: int | None, is_right: str, is_on_track: str) -> None:
    checked = check_answer(answer, TERMS)
    assert checked.total == total
    assert "".join("ny"[flag] for flag in checked.is_right) == is_right
    assert "".join("ny"[flag] for flag in checked.is_on_track) == is_on_track


@given(terms=many_terms, slips=st.lists(st.integers(-1, 1), min_size=10, max_size=10))
def test_what_was_written_is_read_back(terms: list[int], slips: list[int]) -> None:
    results, before = [], terms[0]
    for term, slip in zip(terms[1:], slips, strict=False):
        before += term + slip
        results.append(before)
    total = results[-1] + slips[-1]
    answer = write_answer(terms, results, total)
    checked = check_answer(answer, terms)
    assert checked.total == total
    assert list(checked.is_right) == [slip == 0 for slip in slips[: len(results)]] + [slips[-1] == 0]
    offsets = [sum(slips[: number + 1]) for number in range(len(results))]
    assert list(checked.is_on_track) == [offset == 0 for offset in offsets] + [offsets[-1] + slips[-1] == 0]
    assert checked.ends == (*range(6, 6 * len(terms) - 5, 6), len(split_words(answer)))


@given(text=st.text(max_size=80) | st.text(alphabet="0123456789+=; \nanswer", max_size=200))
def test_any_text_can_be_checked(text: str) -> None:
    checked = check_answer(text, TERMS)
    assert len(checked.is_right) == len(checked.is_on_track) == len(checked.ends)
    assert list(checked.ends) == sorted(set(checked.ends))
    assert not checked.ends or checked.ends[-1] == len(split_words(text))


def test_an_empty_line_belongs_to_the_line_before_it() -> None:
    checked = check_answer("4 + 7 = 11 ; ; 11 + 2 = 13 ; answer 13 ;\n;", (4, 7, 2))
    assert (checked.total, checked.is_right, checked.ends) == (13, (True, True, True), (7, 13, 17))
    assert check_answer("; answer 13", (4, 7, 2)).ends == (3,)


def test_slips_at_every_line_can_be_said() -> None:
    part, terms = WorkedSums(num_terms=4, largest_term=5), (5, 5, 5, 5)
    for slip in (-1, 1):
        results = [sum(terms[: number + 1]) + slip * number for number in (1, 2, 3)]
        answer = write_answer(terms, results, results[-1] + slip)
        assert set(split_words(answer)) <= set(part.vocabulary())


def test_the_total_alone_counts_and_the_info_say_the_rest() -> None:
    environment = WorkedSums().open(task_of(4, 7, 2, 9))
    assert environment.observe().text == "Add 4 + 7 + 2 + 9."
    outcome = environment.act("4 + 7 = 12 ; 12 + 2 = 13 ; 13 + 9 = 22 ; answer 22")
    assert (outcome.success, outcome.reward, outcome.terminated, outcome.accepted) == (True, 1.0, True, True)
    assert outcome.info == {
        "lines_right": [False, False, True, True],
        "lines_on_track": [False, True, True, True],
        "line_ends": [6, 12, 18, 20],
        "answer": "22",
        "gold_answer": "22",
    }
    refused = WorkedSums().open(task_of(4, 7, 2, 9)).act("4 + 7 = 11 ;")
    assert (refused.success, refused.reward, refused.accepted) == (False, 0.0, False)
    assert refused.observation.text == "That is not an answer."
    assert (refused.info["answer"], refused.info["lines_right"]) == ("", [True])


@pytest.mark.parametrize("num_terms", [4, 5, 10])
def test_answers_have_20_to_60_words_that_the_vocabulary_holds(num_terms: int) -> None:
    part = WorkedSums(num_terms=num_terms)
    for task in part.task_set("validation")[:20]:
        environment = part.open(task)
        words = split_words(environment.expert() or "")
        assert 20 <= len(words) <= 60
        assert set(words) <= set(part.vocabulary())
        assert environment.act(environment.expert() or "").success
        assert environment.expert() is None


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match="num_terms: expected a number greater than or equal to 4"):
        WorkedSums(num_terms=3)
