"""The tiny model and its word-level tokenizer."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
from transformers import AutoModelForCausalLM, AutoTokenizer

from groupwise.engines.engine import Request
from groupwise.engines.scripted import ScriptedEngine
from groupwise.models import TinyModel
from groupwise.models.tiny import make_word_tokenizer

WORDS = ("go", "to", "drawer", "1", "2", "you", "see", "a", "mug")


def test_words_are_one_token_each_and_come_back_as_they_were() -> None:
    tokenizer = make_word_tokenizer(WORDS)
    ids = tokenizer("Go to drawer 2").input_ids
    assert len(ids) == 4
    assert tokenizer.decode(ids) == "go to drawer 2"


def test_signs_are_words_and_unknown_words_are_marked() -> None:
    tokenizer = make_word_tokenizer((*WORDS, ".", ","))
    assert tokenizer.convert_ids_to_tokens(tokenizer("a mug, a spoon.").input_ids) == [
        "a",
        "mug",
        ",",
        "a",
        "<unk>",
        ".",
    ]


def test_a_tag_that_is_among_the_words_is_one_and_comes_back_whole() -> None:
    tokenizer = make_word_tokenizer((*WORDS, "<", ">", "/", "action", "<action>", "</action>"))
    ids = tokenizer("<action>go to mug 1</action> <mug>").input_ids
    assert tokenizer.decode(ids) == "<action> go to mug 1 </action> < mug >"
    plain = make_word_tokenizer((*WORDS, "<", ">", "/", "action"))
    assert plain.decode(plain("<action>go</action>").input_ids) == "< action > go < / action >"


def test_the_order_of_the_words_does_not_matter() -> None:
    assert make_word_tokenizer(WORDS).get_vocab() == make_word_tokenizer(reversed(WORDS)).get_vocab()


def test_a_seed_gives_the_same_weights_and_leaves_the_global_generator_alone() -> None:
    torch.manual_seed(7)
    expected = torch.rand(1)
    torch.manual_seed(7)
    first, _ = TinyModel(hidden=16, layers=1).open(words=WORDS, seed=3)
    assert torch.equal(torch.rand(1), expected)
    same, _ = TinyModel(hidden=16, layers=1).open(words=WORDS, seed=3)
    other, _ = TinyModel(hidden=16, layers=1).open(words=WORDS, seed=4)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), same.parameters(), strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(first.parameters(), other.parameters(), strict=True))


def test_it_is_an_ordinary_model_folder(tmp_path: Path) -> None:
    model, tokenizer = TinyModel(hidden=16, layers=1).open(words=WORDS, seed=0)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    ids = torch.tensor([AutoTokenizer.from_pretrained(tmp_path)("go to drawer 1").input_ids])
    assert torch.equal(AutoModelForCausalLM.from_pretrained(tmp_path)(ids).logits, model(ids).logits)


def test_a_script_stops_where_it_must() -> None:
    engine = ScriptedEngine(lambda request: [5, 6, 2, 7])
    stopped, cut = engine.generate(
        [Request(prompt_ids=(1,), seed=0, max_tokens=9, stop_ids=(2,)), Request(prompt_ids=(1,), seed=0, max_tokens=2)]
    )
    assert (stopped.response_ids, stopped.stopped) == ((5, 6, 2), True)
    assert (cut.response_ids, cut.stopped) == ((5, 6), False)
    engine.load({}, version=4)
    assert engine.version == 4
    assert engine.score([((1,), (5, 6))]) == [(0.0, 0.0)]
