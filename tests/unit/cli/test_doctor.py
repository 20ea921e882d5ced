"""`groupwise doctor`: info, a self-test, and what to mend."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from groupwise.cli import doctor as machine
from groupwise.engines.transformers_engine import TransformersEngine
from groupwise.learner.local import LocalLearner
from groupwise.system.processes import format_bytes
from groupwise.training.config.run_file import load_run
from groupwise.training.doctor import hardware
from groupwise.training.doctor.doctor import estimate_sizes
from tests.unit.cli.conftest import Run
from tests.unit.cli.run_files import SMALL, small


@pytest.fixture(autouse=True)
def quiet_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four free cores, plenty of disk and memory, no GPU: what the tests change, one at a time."""
    monkeypatch.setattr(machine, "count_usable_cores", lambda: 4)
    monkeypatch.setattr(machine, "read_load", lambda: 0.2)
    monkeypatch.setattr(machine, "read_free_disk", lambda folder: (50e9, 100e9))
    monkeypatch.setattr(machine, "read_free_memory", lambda: 8e9)
    monkeypatch.setattr(hardware, "count_threads", lambda: 2)
    monkeypatch.setattr(hardware, "list_gpus", list)
    monkeypatch.setattr("shutil.which", lambda name: None)


def about(out: str, name: str) -> list[str]:
    """The line about something, and the fix below it where there is one."""
    lines = out.splitlines()
    [place] = [number for number, line in enumerate(lines) if line[10:].startswith(f"{name}:")]
    fix = [line for line in lines[place + 1 : place + 2] if line.lstrip().startswith("Fix:")]
    return [" ".join(lines[place].split()), *(" ".join(line.split()) for line in fix)]


def test_a_sound_machine_passes_the_self_test(groupwise: Run) -> None:
    ran = groupwise("doctor")
    assert ran.status == 0, ran.out
    assert ran.out.splitlines()[0] == "yes, you can train here, on the CPU: small models only"
    assert "warning" not in ran.out
    assert "broken" not in ran.out
    assert about(ran.out, "threads") == ["ok threads: torch uses 2; there are 4 cores, and the load is 0.2"]
    assert about(ran.out, "disk") == ["ok disk: 50.0 GB of 100.0 GB free for runs"]
    assert about(ran.out, "scored log-probs equal sampled ones")[0].startswith("ok ")
    assert about(ran.out, "a learner step changes the weights")[0].startswith("ok ")
    assert about(ran.out, "the engine gets the new weights")[0].startswith("ok ")


def test_missing_extras_are_one_line_with_the_command(groupwise: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    known, missing = machine.find_version, ("pyarrow", "bfcl-eval")
    monkeypatch.setattr(machine, "find_version", lambda name: None if name in missing else known(name) or "1.0")
    out = groupwise("doctor").out
    assert about(out, "optional extras") == [
        "note optional extras: parquet, bfcl not installed; to install one: pip install 'groupwise[parquet]'"
    ]
    assert "\n          for bfcl also: pip install --no-deps bfcl-eval\n" in out
    assert "pyarrow" not in out
    assert about(out, "torch") == [f"ok torch: {torch.__version__}"]


def test_more_threads_than_free_cores_are_warned_of(groupwise: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "read_load", lambda: 3.1)
    ran = groupwise("doctor")
    assert ran.status == 0
    assert about(ran.out, "threads") == [
        "warning threads: torch uses 2; there are 4 cores, and the load is 3.1",
        "Fix: export OMP_NUM_THREADS=1; if threads share cores, a tiny model is about ten times slower",
    ]


def test_a_disk_that_is_nearly_full_is_warned_of(groupwise: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "read_free_disk", lambda folder: (0.5e9, 100e9))
    assert about(groupwise("doctor", "--out", "elsewhere").out, "disk") == [
        "warning disk: 500.0 MB of 100.0 GB free for elsewhere",
        "Fix: free some space, or choose another disk with --out",
    ]


def test_a_gpu_without_bfloat16_and_one_that_torch_cannot_see(groupwise: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    old = hardware.Gpu(name="T4", free=10e9, memory=16e9, has_bfloat16=False)
    new = hardware.Gpu(name="H200", free=139e9, memory=140e9, has_bfloat16=True)
    monkeypatch.setattr(hardware, "list_gpus", lambda: [old, new])
    out = groupwise("doctor").out
    assert out.splitlines()[0] == "yes, you can train here, on 2 GPUs"
    assert about(out, "GPU 0") == [
        "warning GPU 0: T4, 10.0 GB of 16.0 GB free, no bfloat16",
        'Fix: set model.dtype = "float32"',
    ]
    assert about(out, "GPU 1") == ["ok GPU 1: H200, 139.0 GB of 140.0 GB free, bfloat16"]
    monkeypatch.setattr(hardware, "list_gpus", list)
    monkeypatch.setattr("shutil.which", lambda name: "/usr/bin/nvidia-smi")
    assert about(groupwise("doctor").out, "GPU")[0] == "warning GPU: there is an NVIDIA driver, but torch sees no GPU"


def test_a_sampler_that_lies_is_broken(groupwise: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = TransformersEngine.score

    def lie(self: TransformersEngine, sequences: Any, *, temperature: float = 1.0) -> Any:
        return [tuple(logp + 0.01 for logp in logps) for logps in honest(self, sequences, temperature=temperature)]

    monkeypatch.setattr(TransformersEngine, "score", lie)
    ran = groupwise("doctor")
    assert ran.status == 1
    assert ran.out.splitlines()[0] == "no, you cannot train here: see what is broken below"
    [line, fix] = about(ran.out, "scored log-probs equal sampled ones")
    assert line == "broken scored log-probs equal sampled ones: log-probs differ by 0.01 nats, more than 1e-05"
    assert fix.startswith("Fix: install the versions in constraints.txt")


def test_weights_that_do_not_arrive_are_broken(groupwise: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def forgets(self: TransformersEngine, weights: Any, *, version: int) -> None:
        self._version = version

    monkeypatch.setattr(TransformersEngine, "load", forgets)
    ran = groupwise("doctor")
    assert ran.status == 1
    assert "its `load` had no effect" in about(ran.out, "the engine gets the new weights")[0]


def test_a_learner_that_learns_nothing_is_broken(groupwise: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = LocalLearner.learn

    def idle(self: LocalLearner, samples: Any, totals: Any) -> Any:
        before = {name: value.clone() for name, value in self.model.state_dict().items()}
        learned = honest(self, samples, totals)
        self.model.load_state_dict(before)
        return learned

    monkeypatch.setattr(LocalLearner, "learn", idle)
    ran = groupwise("doctor")
    assert ran.status == 1
    assert about(ran.out, "a learner step changes the weights")[0].endswith("the weights did not change")


def test_a_run_file_is_decoded_and_sized(groupwise: Run, tmp_path: Path) -> None:
    out = groupwise("doctor", small(tmp_path)).out
    assert about(out, "small.toml") == ["ok small.toml: 2 updates of 8 rollouts"]
    assert about(out, "tokens") == ["ok tokens: at most 64 sampled tokens per update"]  # 8 rollouts, 8 steps, 1 token
    assert about(out, "memory of the run")[0].startswith("ok memory of the run: about ")
    assert about(out, "checkpoints")[0].startswith("ok checkpoints: 3 of ")


def test_a_wrong_run_file_is_broken_and_a_run_too_large_is_warned_of(
    groupwise: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "wrong.toml").write_text(
        '[algorithm]\nmethod = "hgop"\n[model]\nkind = "tiny"\n[env]\nkind = "identity"\n'
    )
    ran = groupwise("doctor", "wrong.toml")
    assert ran.status == 1
    assert "there is no method 'hgop'; did you mean 'hgpo'?" in ran.out
    parts = estimate_sizes(load_run(tmp_path / small(tmp_path))).memory.parts
    kept = sum(parts[name] for name in ("weights", "gradients", "optimizer", "engine"))
    monkeypatch.setattr(machine, "read_free_memory", lambda: kept)
    ran = groupwise("doctor", "small.toml")
    assert ran.status == 0
    assert about(ran.out, "memory of the run")[0].endswith(f", but {format_bytes(kept)} are available")
    monkeypatch.setattr(machine, "read_free_disk", lambda folder: (1e3, 1e9))
    assert about(groupwise("doctor", "small.toml").out, "checkpoints")[0].endswith(", but 1.0 kB of disk are free")


def test_settings_are_tried_before_the_file_is_changed(groupwise: Run, tmp_path: Path) -> None:
    file = small(tmp_path)
    out = groupwise("doctor", file, "--set", "training.tasks=3", "--unset", "training.updates").out
    assert about(out, "small.toml") == ["ok small.toml: 20 updates of 12 rollouts"]


def test_a_run_file_that_is_not_there_is_named_once(groupwise: Run) -> None:
    ran = groupwise("doctor", "nope.toml")
    assert ran.status == 1
    (line,) = [line for line in ran.out.splitlines() if "nope.toml" in line]
    assert line.count("nope.toml") == 1


def test_a_reward_function_that_was_not_looked_at_is_noted(groupwise: Run, tmp_path: Path) -> None:
    reward = '[[rewards]]\nkind = "function"\nfunction = "mine.py:score"\n'
    (tmp_path / "run.toml").write_text(f"{SMALL}\n{reward}", encoding="utf-8")
    (tmp_path / "mine.py").write_text("def score(a, b, c): ...\n", encoding="utf-8")
    unread = f"rewards: {tmp_path}/mine.py:score not loaded without --trust, so its signature was not checked"
    ran = groupwise("doctor", "run.toml")
    assert ran.status == 0, ran.out
    assert f"note     run.toml: {unread}" in ran.out
    assert f"note: {unread}" in groupwise("preview", "run.toml", "--tasks", "1").out
    ran = groupwise("doctor", "run.toml", "--trust")
    assert ran.status == 1
    assert f"the function '{tmp_path}/mine.py:score' takes (a, b, c)" in ran.out


def test_without_the_trainer_a_machine_is_sound_and_a_run_file_is_not(
    groupwise: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "find_version", lambda name: "1.0" if name == "torch" else None)
    ran = groupwise("doctor")
    assert ran.status == 0
    assert ran.out.splitlines()[0] == (
        "no, you cannot train here: transformers, tokenizers, safetensors, peft not installed. "
        "Fix: pip install 'groupwise[train]'"
    )
    ran = groupwise("doctor", small(tmp_path))
    assert ran.status == 1
    assert about(ran.out, "small.toml") == [
        "broken small.toml: not checked, because packages are missing",
        "Fix: pip install 'groupwise[train]'",
    ]


def test_sizes_are_those_of_the_model(tmp_path: Path) -> None:
    config = load_run(tmp_path / small(tmp_path))
    sizes = estimate_sizes(config)
    model, tokenizer = config.model.open(words=config.env.vocabulary(), seed=0)
    weights = sum(value.numel() for value in model.parameters())
    assert (sizes.rollouts, sizes.tokens, sizes.parameters, sizes.trained) == (8, 64, weights, weights)
    assert sizes.checkpoint == weights * 4 * 3
    fixed = ("weights", "gradients", "optimizer", "engine")
    assert sum(sizes.memory.parts[part] for part in fixed) == weights * 4 * 5
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    lora = f'model={{kind="pretrained",path="{tmp_path / "model"}",lora_rank=2}}'
    adapted = estimate_sizes(load_run(tmp_path / "small.toml", overrides=[lora]))
    opened, _ = load_run(tmp_path / "small.toml", overrides=[lora]).model.open(words=(), seed=0)
    trained = sum(value.numel() for value in opened.parameters() if value.requires_grad)
    assert (adapted.parameters, adapted.trained) == (weights, trained)


def test_the_memory_of_a_run_is_told_part_by_part(groupwise: Run, tmp_path: Path) -> None:
    out = groupwise("doctor", small(tmp_path)).out.splitlines()
    begin = next(number for number, line in enumerate(out) if "memory of the run" in line)
    table = {line[10:26].strip(): line[26:].split() for line in out[begin + 1 : begin + 11]}
    assert {"weights", "gradients", "optimizer", "activations", "keys and values", "rollouts", "learning"} <= {*table}
    assert table["activations"][2:] == ["learning", "training.learner:", "token_budget,", "checkpoint_layers"]
    assert table["engine"][2:] == ["always", "engine.precision"]


def test_gradients_that_cannot_be_applied_as_they_come_are_warned_of(groupwise: Run, tmp_path: Path) -> None:
    content = (tmp_path / small(tmp_path)).read_text(encoding="utf-8").replace("tasks = 2\ncheck", "tasks = 8\ncheck")
    learner = 'token_budget = 32\napply_gradients = "as_they_come"\nmax_grad_norm = "off"\n'
    (tmp_path / "small.toml").write_text(f"{content}\n[training.learner]\n{learner}", encoding="utf-8")
    assert about(groupwise("doctor", "small.toml").out, "gradients") == [
        "warning gradients: apply_gradients needs one micro-batch per optimizer step, but the longest rollouts need "
        "several",
        "Fix: set training.learner: apply_gradients = 'together', or raise token_budget or minibatches",
    ]
    wide = content + "\n[training.learner]\n" + learner.replace("32", "4096")
    (tmp_path / "small.toml").write_text(wide, encoding="utf-8")
    assert " gradients: " not in groupwise("doctor", "small.toml").out


def test_the_machines_own_info_are_plausible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert machine.count_usable_cores() >= 1
    assert machine.read_load() >= 0
    free, whole = machine.read_free_disk(Path("does/not/exist"))
    assert 0 <= free <= whole
    memory = machine.read_free_memory()
    assert memory is None or memory > 1e6
    assert machine.find_version("numpy") is not None
    assert machine.find_version("no-such-package") is None


def test_the_extras_are_those_of_the_package() -> None:
    content = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))
    assert set(machine.EXTRAS.values()) == set(content["project"]["optional-dependencies"]) - {"dev", "docs"}
