"""Answers: what is read out of a response, and that what is said is read back."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.envs.kit.answers import ASKED, Form, are_same_words, find_last_boxed, is_answer, read_answer, say_answer

FORMS: tuple[Form, ...] = get_args(Form)
PLAIN = st.text(alphabet="abc 019-+/.,", min_size=1).map(str.strip).filter(bool)


@pytest.mark.parametrize(
    ("form", "response", "answer"),
    [
        ("whole", "  42 \n", "42"),
        ("last_line", "I add them.\n\n 42 \n", "42"),
        ("last_line", " \n ", ""),
        ("last_number", "12 apples and 30 more make 1,042.", "1042"),
        ("last_number", "15 - 43 = -28.", "-28"),
        ("last_number", "5-3", "3"),
        ("last_number", "so 3.50 or 7/2", "7/2"),
        ("last_number", "none", ""),
        ("tags", "so <answer>41</answer>, no: <answer> 42\n</answer>.", "42"),
        ("tags", "< answer > 42 < / answer >", "42"),
        ("tags", "<ANSWER>42</ANSWER>", "42"),
        ("tags", "42", ""),
        ("tags", "<answer>42", ""),
        ("boxed", r"first \boxed{1}, then \boxed{\frac{1}{2}}.", r"\frac{1}{2}"),
        ("boxed", r"\ boxed { 72 }", "72"),
        ("boxed", r"\boxed{1} and \boxed{2", ""),
        ("boxed", "72", ""),
    ],
)
def test_the_answer_is_read_where_it_was_asked_for(form: Form, response: str, answer: str) -> None:
    assert read_answer(response, form) == answer


@given(
    answer=PLAIN,
    form=st.sampled_from([form for form in FORMS if form != "last_number"]),
    before=st.sampled_from(["", "Let me see. "]),
)
def test_what_is_said_is_read_back(answer: str, form: Form, before: str) -> None:
    before = "" if form == "whole" else before + ("\n" if form == "last_line" else "")
    assert read_answer(before + say_answer(answer, form), form) == answer


@given(number=st.integers() | st.decimals(-(10**6), 10**6, places=2), before=st.sampled_from(["", "3 and ", "2 * "]))
def test_a_number_that_is_said_last_is_read_back(number: object, before: str) -> None:
    assert read_answer(f"{before}{say_answer(str(number), 'last_number')}.", "last_number") == str(number)


@given(text=st.text(), form=st.sampled_from(FORMS))
def test_any_text_can_be_read(text: str, form: Form) -> None:
    answer = read_answer(text, form)
    assert answer == answer.strip()
    assert answer in (text.replace(",", "") if form == "last_number" else text)


@given(depth=st.integers(0, 20))
def test_braces_within_a_box_belong_to_it(depth: int) -> None:
    inner = "{" * depth + "x" + "}" * depth
    assert find_last_boxed(f"\\boxed{{{inner}}}}} tail") == inner


@pytest.mark.parametrize(
    ("answer", "stored", "form", "expected"),
    [
        ("7", "42", "whole", True),
        ("-1,000.5", "42", "whole", True),
        ("1/3", "42", "whole", True),
        ("- 3", "42", "whole", True),
        ("seven", "42", "whole", False),
        ("7 or 8", "42", "whole", False),
        ("7 8", "42", "whole", False),
        ("olleh", "gnerk", "whole", True),
        ("go to", "gnerk", "whole", False),
        ("ß🙂", "gnerk", "whole", False),
        ("5 \u00d7 139", "2 \u00d7 3", "whole", True),
        ("anything at all", "42", "tags", True),
        ("anything at all", None, "whole", True),
        ("7", "gnerk", "last_number", True),
        ("", "42", "tags", False),
        ("", None, "whole", False),
        ("a" * 2001, "gnerk", "tags", False),
        ("a" * 2001, "b" * 600, "tags", True),
    ],
)
def test_what_can_be_an_answer(answer: str, stored: str | None, form: Form, expected: bool) -> None:
    assert is_answer(answer, stored, form) is expected


def test_words_are_compared_without_case_and_spacing() -> None:
    assert are_same_words("- 3 . 5", "-3.5")
    assert are_same_words("daniel is an angel .", "Daniel is an angel.")
    assert not are_same_words("3 5", "35")
    assert not are_same_words("", None)


def test_every_form_is_asked_for_in_one_line() -> None:
    assert set(ASKED) == set(FORMS)
    assert all("\n" not in asked and asked.endswith(".") for asked in ASKED.values())
