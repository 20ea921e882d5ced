"""Readers who are new, and do not speak English as a first language, understand each sentence at first reading.

The README, Learn, How to and every `--help` have no long sentence and no home-made word. Other pages, errors, reports
and docstrings of fields are counted, and the counts may only fall.
"""

from __future__ import annotations

from functools import cache

import pytest

from tests.architecture import prose
from tests.architecture.markdown import pages, text_of

counts = cache(prose.count_faults)


@pytest.mark.parametrize("page", list(filter(prose.is_plain, pages())))
def test_pages_for_new_users_are_plain(page: str) -> None:
    assert prose.faults_of_page(text_of(page)) == []


def test_help_is_plain() -> None:
    told = [
        (name, fault) for name, text in prose.texts_of_help() for fault in prose.faults_of(prose.sentences_of(text))
    ]
    assert told == []


def test_counts_have_not_risen() -> None:
    record = prose.read_record()
    risen = {name: (record.get(name, 0), count) for name, count in counts().items() if count > record.get(name, 0)}
    assert risen == {}, f"`{prose.LIST} PATH` lists the sentences to rewrite"


def test_counts_that_fell_are_recorded() -> None:
    fallen = {name: count for name, count in prose.read_record().items() if counts().get(name, 0) < count}
    assert fallen == {}, f"well done; run `{prose.LIST} --lower`"


def test_the_record_has_nothing_that_must_be_plain() -> None:
    assert [name for name in prose.read_record() if name == "help" or prose.is_plain(name)] == []


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("A short sentence. " * 40, []),
        ("word " * 31, ["31 words", "mean 31.0 words"]),
        (
            "A sentence of twenty-one words has one too many for a page on which all are like it, " + "so " * 3 + ".",
            ["mean 21.0 words"],
        ),
        ("The attempt is handed over.", ["attempt"]),
        ("Nobody can be told apart.", ["nobody", "told apart"]),
        ("| attempt | whoever |\n\n```\nattempt = 1\n```\n\n# The canary\n\n`canary` is code.", []),
        ("ALFWorld and TextWorld have no world model, and `rich.panel` is a file.", []),
    ],
)
def test_faults_are_found_in_sentences_alone(text: str, kinds: list[str]) -> None:
    assert [fault.split(":")[0] for fault in prose.faults_of_page(text)] == kinds


def test_texts_of_a_module_are_its_errors_and_the_docstrings_of_its_fields() -> None:
    source = '''
class A:
    """Not counted."""

    a: int = 1
    """A field."""

    def f(self):
        note = "not counted"
        raise ValueError(f"the value {self.a} is wrong" + note)
'''
    texts = sorted(prose.texts_of_module(prose.ast.parse(source)))
    assert texts == [("errors", "the value X is wrong"), ("fields", "A field.")]


def test_a_template_is_read_without_tags_and_values() -> None:
    template = "{% if a %}<p>One <b>{{ n }}</b> of\n two.</p><p>Next.</p>{% endif %}<style>p {}</style>"
    assert list(prose.texts_of_template(template)) == ["One X of two.", "Next."]


def test_the_record_is_lowered_and_never_raised(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    record = prose.Path(str(tmp_path)) / "record.json"
    record.write_text('{"a": 3, "b": 1}', encoding="utf-8")
    monkeypatch.setattr(prose, "RECORD", record)
    monkeypatch.setattr(prose, "count_faults", lambda: {"a": 2})
    prose.main(["--lower"])
    assert prose.read_record() == {"a": 2}
    monkeypatch.setattr(prose, "count_faults", lambda: {"a": 1, "c": 1})
    with pytest.raises(SystemExit, match="'c': 1"):
        prose.main(["--lower"])
    assert prose.read_record() == {"a": 2}
