"""What our server loads: whole models and adapters, in memory of their own, and refusals in one sentence."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from groupwise.engines.engine import Generation, Request
from groupwise.engines.server import __main__ as command
from groupwise.engines.server.served_model import ServedModel, open_served_model
from groupwise.engines.transformers_engine import TransformersEngine
from groupwise.models import PretrainedModel, TinyModel
from groupwise.system.errors import EngineFault

REQUEST = Request(prompt_ids=(5, 6, 7), seed=1, max_tokens=6)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    model, tokenizer = TinyModel(hidden=16, layers=1, heads=2).open(words=("go", "left", "right"), seed=0)
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def open_with(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> ServedModel:
    monkeypatch.setattr(sys, "argv", ["server", *arguments])
    return open_served_model(command._read_options())


def ask(served: ServedModel) -> list[Generation]:
    return asyncio.run(served.generate([REQUEST]))


def make_adapter(folder: Path, place: Path, **settings: Any) -> Any:
    """A model with an adapter that says something, and its folder."""
    model, _ = PretrainedModel(path=str(folder), lora_rank=4, **settings).open(words=(), seed=0)
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, value in model.named_parameters():
            if "lora_B" in name:
                value.copy_(torch.randn(value.shape, generator=draw))
    model.save_pretrained(place)
    return model


def test_weights_lie_where_a_copy_of_the_model_has_them(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """A mapped file puts them anywhere, and where a number lies can decide its last bit."""
    served = open_with(monkeypatch, str(folder), "--threads", "1")
    assert {value.data_ptr() % 64 for value in served._parameters().values()} == {0}
    assert (served.card.root, served.card.vocabulary, served.engine.version) == (str(folder), 17, 0)


def test_an_adapter_is_served_as_the_learner_has_it(
    monkeypatch: pytest.MonkeyPatch, folder: Path, tmp_path: Path
) -> None:
    adapted = make_adapter(folder, tmp_path / "adapter")
    expected = TransformersEngine(adapted).generate([REQUEST])
    assert ask(open_with(monkeypatch, str(tmp_path / "adapter"))) == expected
    # One that comes later, to a server that was told of its rank.
    served = open_with(monkeypatch, str(folder), "--lora-rank", "4")
    assert ask(served) != expected
    asyncio.run(served.load_adapter(str(tmp_path / "adapter"), "0"))
    assert ask(served) == expected
    with pytest.raises(EngineFault, match="cannot be read here"):
        asyncio.run(served.load_adapter(str(tmp_path), "1"))
    named = make_adapter(folder, tmp_path / "named", lora_targets=("q_proj", "v_proj"))
    served = open_with(monkeypatch, str(folder), "--lora-rank", "4", "--lora-targets", "q_proj,v_proj")
    asyncio.run(served.load_adapter(str(tmp_path / "named"), "0"))
    assert ask(served) == TransformersEngine(named).generate([REQUEST])
    whole = open_with(monkeypatch, str(folder))
    with pytest.raises(EngineFault, match=r"it serves another model, without the weight .*lora_A"):
        asyncio.run(whole.load_adapter(str(tmp_path / "adapter"), "1"))


def test_serving_without_its_packages_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["server", "./nowhere"])
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(SystemExit):
        command.main()
    assert "serving needs Starlette and uvicorn; run pip install 'groupwise[serve]'" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["./nowhere"], "error: there is no folder './nowhere'"),
        (["./nowhere", "--port", "70000"], "error: port 70000 is invalid; give a number from 0 to 65535"),
        (["./nowhere", "--device", "cuda:99"], "error: device: 'cuda:99' cannot be used"),
    ],
)
def test_what_keeps_it_from_serving_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["server", *arguments])
    with pytest.raises(SystemExit) as caught:
        command.main()
    assert caught.value.code == 2
    assert capsys.readouterr().out.startswith(words)
