"""Wrong run files stop `groupwise train` before a model loads: with the path, the reason and the nearest valid name."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import pytest

pytest.importorskip("torch")

import transformers

from groupwise.cli.main import main
from groupwise.models import TinyModel
from groupwise.parts.part import Part

ROOT = Path(__file__).parents[2]
SOUND = """
[algorithm]
method = "dr_grpo"

[env]
kind = "identity"

[model]
kind = "tiny"
"""
SECTIONS = "docs/reference/settings.md lists them all"

UNKNOWN = [
    ("trainin.updates=3", f"trainin: unknown setting; did you mean 'training'? {SECTIONS}"),
    (
        "training.updtes=3",
        "training.updtes: unknown setting; did you mean 'updates'? docs/reference/settings.md lists them all",
    ),
    (
        "training.learner.schedule={kind='cosine', steps=9, flor=0.1}",
        "training.learner.schedule.flor: unknown setting; did you mean 'floor'? Valid: floor, steps, warmup_steps",
    ),
    (
        "algorithm.loss.surogate=clip",
        "algorithm.loss.surogate: unknown setting; did you mean 'surrogate'? "
        "docs/reference/parts/loss.md lists them all",
    ),
    (
        "env.num_word=4",
        "env.num_word: unknown setting; did you mean 'num_words'? Valid: length, max_steps, num_words",
    ),
    (
        "env.kind=houshold",
        "env.kind: there is no env 'houshold'; did you mean 'household'? docs/reference/environments.md lists them all",
    ),
    ("model.kind=tny", "model.kind: there is no model 'tny'; did you mean 'tiny'? Valid: pretrained, tiny"),
    (
        "rollout.history=fll",
        "rollout.history: there is no history 'fll'; did you mean 'full'? Valid: anchored_window, full, window",
    ),
    (
        "rollout.top_p=0.9",
        "rollout.top_p: training samples from the whole distribution: with a truncated one, the log-probs would not "
        "be the policy's, and every ratio of the loss would be wrong (by 0.69 nats at top_p = 0.5); use temperature, "
        "or truncate in [evaluation], from which nothing is learned",
    ),
    (
        "engine.stop=['</action>']",
        "engine.stop: a response ends with the token that ends a turn, never at a string, "
        "because a string may end inside a token; limit max_tokens, or parse the action with rollout.action_parser",
    ),
    (
        "evaluation.repetition_penalty=1.1",
        "evaluation.repetition_penalty: no engine here penalises repeated tokens, "
        "because the learner could not compute the same distribution; use a reward instead",
    ),
]
"""A name that is not one, at each level of the file."""

WRONG = [
    (
        "training.updates=many",
        "training.updates: expected an integer, found 'many'",
    ),
    (
        "rollout.temperature=0",
        "rollout.temperature: expected a number greater than 0, found 0",
    ),
    ("seed=1.5", "seed: expected an integer, found 1.5"),
    ("model=3", "model: found 3; give a model, or a table with its `kind`"),
    ("training.updates", "'training.updates' has no value; write --set training.updates=VALUE"),
    ("env.kind.x=1", "'kind' is a value, not a section"),
]
"""A value that cannot be, and a --set that says nothing."""

IMPOSSIBLE = [
    (
        "rollout.action_parser=choice",
        "rollout: action_parser 'choice' needs the numbers of the actions in the prompt; set "
        'template.show_admissible = "numbered"',
    ),
    (
        "env={kind='household', categories=['heat'], rooms=['bedroom']}",
        "env: the family 'heat' needs a kitchen; add that room, or remove the family",
    ),
    (
        "model={kind='pretrained', path='x', dtype='bfloat16'}",
        "model: all weights would train in bfloat16, which rounds small steps to 0; set model.dtype = "
        "'float32', a model.lora_rank, or training.learner.bfloat16_weights",
    ),
    (
        "model.heads=3",
        "model: hidden is 128, but with 3 heads it must be a multiple of 6",
    ),
    (
        "env={kind='boxes', max_steps=5}",
        "env: num_moves is 14, more than max_steps (5), so some levels cannot be solved; increase max_steps",
    ),
    (
        "algorithm.loss={old='engine', corrections=['truncate']}",
        "algorithm.loss: Truncate has nothing to correct with old='engine', because the ratio itself is "
        "taken against the engine; leave out one of the two",
    ),
    (
        "env.kind=my_games.chess:Chess",
        "env: cannot load the env 'my_games.chess:Chess': No module named 'my_games'; check that the "
        "package is installed",
    ),
]
"""Settings that do not go together, seen when the file is read."""


class Critical(Part, slot="penalty"):
    """A penalty that reads what nobody computes."""

    weight: float = 1.0
    needs: ClassVar[frozenset[str]] = frozenset({"reference_logps"})

    def __call__(self, columns: Any) -> Any:
        return columns.logp


OPENED = [
    ("evaluation.split=tst", "there is no split 'tst'; did you mean 'test'? Valid: test, train, validation"),
    (
        "model={kind='pretrained', path='models/wram'}",
        "model.path: there is no folder 'FOLDER/models/wram'; in 'FOLDER/models' there are: cold, warm (did you mean "
        "'warm'?)",
    ),
    (
        "model={kind='pretrained', path='/nowhere/at/all'}",
        "model.path: there is no folder '/nowhere/at/all'; give a local folder or a hub name",
    ),
    (
        f"algorithm.loss.penalties=['{__name__}:Critical']",
        "algorithm.loss: it needs 'reference_logps', which nothing here computes; did you mean 'reference_logp'? "
        "Valid: entropy, old_logp, pairs, reference_logp, spans",
    ),
    (
        "algorithm.method=mc_grpo",
        "rollout.group_size is 8, but the filter drop_pivot drops the rollout at the median, and only an odd number "
        "has one; give 9 to train on 8",
    ),
]
"""What is seen when the run is opened: still before a model."""


@pytest.fixture
def stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Trains with overrides in an empty folder, where no model may be made or loaded; what it was stopped with."""

    def refuse(*arguments: object, **options: object) -> NoReturn:
        raise AssertionError("a model was opened")

    monkeypatch.setattr(TinyModel, "build", refuse)
    for loader in (transformers.AutoModelForCausalLM, transformers.AutoTokenizer):
        monkeypatch.setattr(loader, "from_pretrained", refuse)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.toml").write_text(SOUND, encoding="utf-8")

    def stop(*overrides: str) -> str:
        options = [word for override in overrides for word in ("--set", override)]
        monkeypatch.setattr(sys, "argv", ["groupwise", "train", "run.toml", *options])
        with pytest.raises(SystemExit) as caught:
            main()
        assert caught.value.code == 2
        return capsys.readouterr().err

    return stop


@pytest.mark.parametrize(("override", "message"), [*UNKNOWN, *WRONG, *IMPOSSIBLE])
def test_a_wrong_run_file_is_named_with_the_reason_and_leaves_nothing(
    stopped: Any, tmp_path: Path, override: str, message: str
) -> None:
    assert stopped(override) == f"error: run.toml with --set {override}: {message}\n"
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(("override", "message"), OPENED)
def test_what_shows_when_a_run_is_opened_stops_it_before_a_model(
    stopped: Any, tmp_path: Path, override: str, message: str
) -> None:
    for name in ("warm", "cold"):
        (tmp_path / "models" / name).mkdir(parents=True)
        (tmp_path / "models" / name / "config.json").touch()
    (tmp_path / "models" / "worm").mkdir()  # no model
    assert stopped(override) == f"error: {message.replace('FOLDER', str(tmp_path))}\n"
    assert not (tmp_path / "runs" / "run" / "journal.sqlite").exists()


def test_an_algorithm_without_a_loss_cannot_train(stopped: Any, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(
        "[algorithm.advantage]\nkind = 'relative'\nby = 'by_task'\nof = 'episode_return'\n"
        "[env]\nkind = 'identity'\n[model]\nkind = 'tiny'\n",
        encoding="utf-8",
    )
    assert stopped() == "error: the algorithm has no loss; choose a method that has one, or add [algorithm.loss]\n"


def test_an_environment_whose_package_is_missing_says_what_to_install(
    stopped: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    assert stopped("env={kind='gymnasium', id='FrozenLake-v1'}") == (
        "error: the environment 'gymnasium' needs a package that is not installed; pip install 'groupwise[gymnasium]'\n"
    )


def test_a_warm_start_without_an_expert_is_refused(stopped: Any) -> None:
    pytest.importorskip("gymnasium")
    assert stopped("env={kind='gymnasium', id='FrozenLake-v1'}", "warm_start.tasks=2") == (
        "error: the environment has no expert to start from; leave out [warm_start]\n"
    )


def test_a_device_that_is_none_is_refused(stopped: Any) -> None:
    message = stopped("device=gpu")
    assert message.startswith("error: device: 'gpu' cannot be used (")
    assert message.endswith("); give cpu, cuda, or auto\n")


WITHOUT_TORCH = """
import sys
from groupwise.cli.main import main
for words in (["missing.toml"], ["run.toml", "--set", "algorithm.method=hgop"], ["run.toml", "--set", "sed=1"]):
    sys.argv = ["groupwise", "train", *words]
    try:
        main()
    except SystemExit as stopped:
        assert stopped.code == 2
assert "torch" not in sys.modules
"""


def test_what_is_wrong_with_the_file_or_the_method_is_told_without_torch(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(SOUND, encoding="utf-8")
    env = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH], capture_output=True, text=True, check=False, cwd=tmp_path, env=env
    )
    assert ran.returncode == 0, ran.stderr
    first, second, third = ran.stderr.splitlines()
    assert first == "error: missing.toml: there is no such file; give a run file (TOML) or the folder of a run"
    assert second == (
        "error: run.toml with --set algorithm.method=hgop: algorithm.method: there is no method 'hgop'; "
        "did you mean 'hgpo'? `groupwise methods` lists them all"
    )
    assert third == f"error: run.toml with --set sed=1: sed: unknown setting; did you mean 'seed'? {SECTIONS}"
