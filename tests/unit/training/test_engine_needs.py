"""What a run needs of its engine is asked of the engine part before anything loads."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import tomli_w

from groupwise.parts.part import load_catalogue

pytest.importorskip("torch")

from groupwise import ConfigError, Part, methods
from groupwise.credit import Staleness
from groupwise.engines.transformers_engine import TransformersEngine
from groupwise.envs import WorkedSums
from groupwise.parts.slots import CAPABILITIES, REFUSED_SAMPLING
from groupwise.training import LocalEngine
from groupwise.training.config.checks import check_engine_gives, needs_measured_entropies
from groupwise.training.config.run_config import RunConfig
from groupwise.training.config.run_file import decode_run
from groupwise.training.loop import train
from groupwise.training.open_run import open_run
from tests.unit.training.runs import small_config


class Poor(Part, slot="engine"):
    """Gives only what it is told to; it never comes to opening."""

    gives: frozenset[str] = frozenset()
    precision: str = "float32"

    def check_device(self, device: str) -> None:
        raise ConfigError(f"engine: not on {device}")

    def open(self, source: Any) -> Any:
        raise AssertionError("refused before a model loads")


def with_engine(engine: Any, algorithm: Any = None) -> RunConfig:
    changes = {"engine": engine} | ({"algorithm": algorithm} if algorithm is not None else {})
    return small_config().model_copy(update=changes)


def refusal(folder: Path, engine: Any, algorithm: Any = None, env: Any = None) -> str:
    config = with_engine(engine, algorithm)
    with pytest.raises(ConfigError) as caught:
        open_run(config if env is None else config.model_copy(update={"env": env}), folder)
    return str(caught.value)


def all_but(gift: str) -> Poor:
    return Poor(gives=frozenset(CAPABILITIES) - {gift})


REPLAYING = methods.r3(with_reflection=False, with_ranking=False)
REPLAY = type(REPLAYING.replay).__name__


READERS = [("r3", "shapers"), ("gtpo", "token_credit"), ("d3s", "token_credit"), ("epo", "loss")]


@pytest.mark.parametrize(("name", "place"), READERS)
def test_the_learner_measures_entropies_that_the_engine_does_not_give(tmp_path: Path, name: str, place: str) -> None:
    silent, loud = with_engine(all_but("entropy"), methods.build(name)), with_engine(LocalEngine(), methods.build(name))
    assert needs_measured_entropies(silent)
    assert not needs_measured_entropies(loud)
    assert refusal(tmp_path, all_but("entropy"), methods.build(name)) == "engine: not on cpu", "and nothing else"


@pytest.mark.parametrize(("name", "place"), READERS)
@pytest.mark.parametrize("lag", [1, "free"])
def test_at_a_lag_the_learner_no_longer_has_the_weights_that_sampled(name: str, place: str, lag: Any) -> None:
    config = with_engine(all_but("entropy"), methods.build(name))
    with pytest.raises(ConfigError) as caught:
        check_engine_gives(
            config.model_copy(update={"rollout": config.rollout.model_copy(update={"lag": lag})}), device="cpu"
        )
    said = str(caught.value)
    assert said.startswith(f"algorithm.{place}: ")
    assert " reads the entropies of sampled tokens, which the engine Poor(gives=" in said
    assert said.endswith(
        f" does not give. The learner can measure them, but only with the weights that sampled. At rollout.lag = "
        f"{lag!r} it has newer ones. Set rollout.lag to 0, or use an engine that gives them"
    )


def test_a_scorer_that_samples_by_itself_needs_entropies_of_the_engine(tmp_path: Path) -> None:
    said = refusal(tmp_path, all_but("entropy"), methods.build("spae"), env=WorkedSums())
    assert said.startswith("algorithm.scorers: ")
    assert " reads the entropies of sampled tokens, which the engine Poor(gives=" in said
    assert said.endswith(") does not give; use an engine that does, or leave the part out")
    assert refusal(tmp_path, all_but("entropy"), methods.spo_chain()) == "engine: not on cpu"


@pytest.mark.parametrize(
    ("gift", "what"),
    [
        ("scores", "the log-probs of recorded tokens"),
        ("versions", "which version of the weights sampled a token"),
    ],
)
def test_replay_is_refused_with_an_engine_that_cannot_tell_how_far_the_policy_has_moved(
    tmp_path: Path, gift: str, what: str
) -> None:
    said = refusal(tmp_path, all_but(gift), REPLAYING)
    assert said.startswith(f"algorithm.replay: {REPLAY}")
    assert f" reads {what}, which the engine Poor(" in said
    assert said.endswith("does not give; use an engine that does, or leave out algorithm.replay")


def test_an_engine_that_does_not_score_is_refused_for_the_check_after_a_sync(tmp_path: Path) -> None:
    said = refusal(tmp_path, all_but("scores"))
    assert said.startswith(
        "engine: the check after each weight sync reads the log-probs of recorded tokens, which the engine Poor(gives="
    )
    assert said.endswith("does not give; use an engine that does")


def test_a_bound_on_staleness_is_refused_where_nobody_says_what_is_stale(tmp_path: Path) -> None:
    bounded = methods.grpo().model_copy(update={"filters": (Staleness(max_staleness=2),)})
    said = refusal(tmp_path, all_but("versions"), bounded)
    assert said.startswith(
        "algorithm.filters: Staleness(max_staleness=2) reads which version of the weights sampled a token"
    )
    assert refusal(tmp_path, all_but("versions")) == "engine: not on cpu", "nothing else asks"


@pytest.mark.parametrize(
    ("engine", "message"),
    [
        (
            Poor(gives=frozenset({"scores", "entropies"})),
            "engine: '{module}:Poor' has 'entropies' in `gives`, which is not a capability; did you mean 'entropy'? "
            "Valid: entropy, scores, truncation, versions",
        ),
        (
            Poor(gives=frozenset(CAPABILITIES), precision="float8"),
            "engine: '{module}:Poor' has precision 'float8'; write 'float32' or 'bfloat16'",
        ),
    ],
)
def test_a_part_that_is_no_engine_is_refused(tmp_path: Path, engine: Any, message: str) -> None:
    assert refusal(tmp_path, engine) == message.format(module=__name__)


def test_gives_of_another_type_is_refused(tmp_path: Path) -> None:
    class Listing(Poor):
        gives: ClassVar[Any] = ["scores"]  # type: ignore[misc]

    said = refusal(tmp_path, Listing())
    assert said.endswith("has ['scores'] for `gives`; write a frozenset of entropy, scores, versions, truncation")


class Boasting(LocalEngine):
    """Opens an engine that gives less than the part says."""

    def open(self, source: Any) -> Any:
        engine = super().open(source)
        engine.gives = frozenset({"scores"})
        return engine


def test_an_engine_that_gives_less_than_its_part_said_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path, Boasting()) == (
        "engine: Boasting declares 'entropy', but its engine does not give it; remove it from the part's `gives`"
    )


class Unversioned(LocalEngine):
    """Opens an engine that does not say which weights sampled a token."""

    gives: ClassVar[frozenset[str]] = frozenset({"entropy", "scores"})

    def open(self, source: Any) -> Any:
        engine = super().open(source)
        generate = engine.generate
        engine.gives = self.gives
        engine.generate = lambda requests: [replace(generation, versions=()) for generation in generate(requests)]  # type: ignore[method-assign]
        return engine


def test_an_engine_without_versions_trains(tmp_path: Path) -> None:
    run = open_run(with_engine(Unversioned()), tmp_path)
    train(run)
    rows = [row for trajectory in run.journal.trajectories(1) for row in trajectory["steps"]]
    assert rows
    assert not any("version" in row or "versions" in row for row in rows)


class Nothing(LocalEngine):
    """Opens something else."""

    def open(self, source: Any) -> Any:
        return source.model


def test_something_else_than_an_engine_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path, Nothing()) == (
        f"the engine {__name__}:Nothing: open returned a LlamaForCausalLM; expected an engine with gives, version, "
        "context, generate, score and load"
    )


def test_the_engine_of_this_process_has_weights_of_its_own(tmp_path: Path) -> None:
    run = open_run(small_config(), tmp_path)
    assert isinstance(run.engine, TransformersEngine)
    assert run.engine._model is not run.learner.model
    assert run.engine.gives == LocalEngine.gives == frozenset(CAPABILITIES)


def test_a_section_without_kind_is_the_engine_of_this_process_as_in_the_runs_that_are_there() -> None:
    content = tomllib.loads(tomli_w.dumps(small_config().config()))
    assert content["engine"].pop("kind") == "local"
    assert content["engine"].pop("share_weights") is False, "which came later"
    before = {
        "precision": "float32",
        "decoding": "auto",
        "rows": 256,
        "memory": 0.3,
        "compile_parts": "auto",
        "batch_tokens": 32768,
    }
    assert content["engine"] == before, "the keys that config.toml had before there were kinds"
    assert decode_run(content).engine == LocalEngine()
    assert decode_run(content, overrides=["engine.rows=8"]).engine == LocalEngine(rows=8)
    del content["engine"]
    assert decode_run(content).engine == LocalEngine()
    with pytest.raises(ConfigError, match=r"there is no engine 'vlm'; did you mean 'vllm'\? Valid: local, server"):
        decode_run(content | {"engine": {"kind": "vlm"}})


class Narrow(LocalEngine, slot="engine"):
    """The engine of this process with a context of its own; closed where it is refused."""

    context: int
    closed: ClassVar[list[str]] = []

    def open(self, source: Any) -> Any:
        engine: Any = super().open(source)

        class NarrowEngine(type(engine)):  # type: ignore[misc]
            def close(self) -> None:
                Narrow.closed.append("engine")

        engine.__class__, engine.context = NarrowEngine, self.context
        return engine


def test_an_engine_without_room_for_a_prompt_is_refused_and_closed(tmp_path: Path) -> None:
    assert refusal(tmp_path, Narrow(context=1)) == (
        "rollout.max_tokens: 1 response tokens leave no room for a prompt in the engine's context of 1; lower it, or "
        "use an engine with a longer context"
    )
    assert Narrow.closed == ["engine"]
    with open_run(with_engine(Narrow(context=2)), tmp_path):
        assert Narrow.closed == ["engine"]
    assert Narrow.closed == ["engine", "engine"]  # with the run


def test_to_play_and_learn_at_once_on_a_gpu_takes_an_engine_with_a_process_of_its_own() -> None:
    def make(engine: str, lag: int) -> RunConfig:
        settings = {"algorithm": {"method": "grpo"}, "env": {"kind": "identity"}, "model": {"kind": "tiny"}}
        return decode_run({**settings, "engine": {"kind": engine}, "rollout": {"lag": lag}})

    with pytest.raises(ConfigError) as caught:
        check_engine_gives(make("local", 1), device="cuda")
    assert str(caught.value) == (
        "rollout.lag: the engine LocalEngine shares a process with the learner, so on a GPU the learner's attention "
        'kernels would depend on timing. Give the engine its own process ([engine] kind = "server"), or set '
        "rollout.lag to 0"
    )
    check_engine_gives(make("local", 1), device="cpu")
    check_engine_gives(make("local", 0), device="cuda")
    check_engine_gives(make("server", 1), device="cuda")


@pytest.mark.parametrize("kind", sorted(load_catalogue("engine")))
@pytest.mark.parametrize("setting", ["top_p", "top_k", "repetition_penalty", "stop"])
def test_settings_that_bend_the_distribution_are_refused_by_name_by_every_engine(kind: str, setting: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load_catalogue("engine")[kind](**{setting: 1})
    assert f"{setting}: {REFUSED_SAMPLING[setting]}" in str(raised.value)
