"""A learner in shares computes what the local one does, on any number of ranks, and stops as one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from safetensors.torch import load_file, save_file
from torch.distributed import HashStore

from groupwise.data.samples import count_totals
from groupwise.learner.config import LearnerConfig, ShardedLearnerConfig
from groupwise.learner.local import LocalLearner
from groupwise.learner.local_files import OPTIMIZER
from groupwise.learner.protocol import hash_weights
from groupwise.learner.ranks import check_same_places
from groupwise.losses import PolicyLoss
from groupwise.system.errors import ConfigError, TrainingError
from tests.unit.learner import rank_jobs, small_learners
from tests.unit.learner.several_ranks import run_on_ranks, run_whole

EVEN, UNEVEN, SINGLE = (3, 3), small_learners.UNEVEN, (1,)
"""Rollouts of each group: alike on both ranks, many more on one, and none for the second rank."""
CASES = [
    (groups, gather, tied)
    for groups in (EVEN, UNEVEN, SINGLE)
    for gather in ("every_pass", "once_a_step")
    for tied in (False, True)
    if groups is not EVEN or tied is False
]


def distance(gradients: small_learners.Gradients, expected: small_learners.Gradients) -> float:
    """Largest difference of an entry, over the largest entry of its weight."""
    assert gradients.keys() == expected.keys()
    return max(
        float(np.abs(gradients[name] - whole).max() / max(np.abs(whole).max(), 1e-12))
        for name, whole in expected.items()
    )


@pytest.mark.few(2)
@pytest.mark.parametrize(("groups", "gather", "tied"), CASES)
def test_gradients_of_two_ranks_are_those_of_one_process(groups: tuple[int, ...], gather: str, tied: bool) -> None:
    metrics, expected = small_learners.learn_locally(PolicyLoss(), small_learners.make_samples(groups), tied=tied)
    ended = run_whole(rank_jobs.learn_once, PolicyLoss(), groups, gather, tied)
    for of_rank, gradients in ended:
        assert distance(gradients, expected) < 1e-6
        assert of_rank == pytest.approx(metrics, rel=1e-5, abs=1e-6)


@pytest.mark.more
@pytest.mark.parametrize("gather", ["every_pass", "once_a_step"])
@pytest.mark.parametrize("loss", ["reference", "first pass", "turns in an order"])
def test_losses_with_a_reference_a_first_pass_or_stages_need_all_ranks(loss: str, gather: str) -> None:
    part, samples = small_learners.make_loss(loss), small_learners.make_samples(UNEVEN)
    metrics, expected = small_learners.learn_locally(part, samples, passes=2)
    for of_rank, gradients in run_whole(rank_jobs.learn_once, part, UNEVEN, gather, False, 2):
        assert distance(gradients, expected) < 1e-4  # of the second step, after rounding of the first
        assert of_rank == pytest.approx(metrics, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("gather", ["every_pass", "once_a_step"])
def test_layers_are_run_again_in_the_backward_pass_with_the_same_gradient(gather: str) -> None:
    _, expected = small_learners.learn_locally(PolicyLoss(), small_learners.make_samples(UNEVEN))
    for _, gradients in run_whole(rank_jobs.learn_once, PolicyLoss(), UNEVEN, gather, False, 1, True):
        assert distance(gradients, expected) < 1e-6


@pytest.mark.more
@pytest.mark.parametrize(("dtype", "gather"), [("float32", "every_pass"), ("bfloat16", "once_a_step")])
def test_an_adapter_trains_in_shares(dtype: str, gather: str, tmp_path: Path) -> None:
    pytest.importorskip("peft")
    local = LocalLearner(
        small_learners.make_adapted_model(dtype),
        small_learners.make_loss("reference"),
        LearnerConfig(learning_rate=1e-2, token_budget=small_learners.BUDGET, passes=2),
    )
    samples, expected = small_learners.make_samples(UNEVEN), small_learners.watch_gradient(local)
    metrics = local.learn(samples, count_totals(samples, max_tokens=8)).metrics
    narrow = dtype == "bfloat16"  # where the order of sums decides the last of eight bits
    for of_rank, gradients, is_restored in run_whole(rank_jobs.train_adapter, dtype, gather, tmp_path):
        assert gradients.keys() == expected.keys()
        assert distance(gradients, expected) < (0.05 if narrow else 1e-4)
        assert of_rank["loss/total"] == pytest.approx(metrics["loss/total"], rel=1e-2 if narrow else 1e-5)
        assert is_restored
    local.load(tmp_path, steps=2)


def test_a_rank_that_forgets_its_loss_is_seen() -> None:
    _, expected = small_learners.learn_locally(PolicyLoss(), small_learners.make_samples(EVEN))
    [(_, gradients), _] = run_whole(rank_jobs.learn_once, small_learners.Zeroed(), EVEN, "every_pass", False)
    assert distance(gradients, expected) > 0.1


def test_packs_are_kept_and_idle_passes_are_made_only_where_shares_are_put_together_each_time() -> None:
    [[passes, own], [other_passes, other_own]] = run_whole(rank_jobs.count_passes, UNEVEN, "every_pass")
    assert passes == other_passes == max(own, other_own)
    assert own != other_own
    assert run_whole(rank_jobs.count_passes, UNEVEN, "once_a_step") == [[own, own], [other_own, other_own]]
    assert run_whole(rank_jobs.count_passes, SINGLE, "once_a_step") == [[1, 1], [1, 0]]


@pytest.mark.more
@pytest.mark.parametrize("gather", ["every_pass", "once_a_step"])
def test_every_rank_answers_what_the_local_learner_answers(gather: str) -> None:
    local, samples = (
        small_learners.open_local(small_learners.make_loss("reference"), passes=2),
        small_learners.make_samples([2, 2]),
    )
    before = local.logps(small_learners.PAIR)
    local.learn(samples, count_totals(samples, max_tokens=8))
    expected = before[0], local.logps(small_learners.PAIR, weights="reference")[0], local.logps(small_learners.PAIR)[0]
    for answers in run_whole(rank_jobs.ask, gather):
        np.testing.assert_allclose([answer[0] for answer in answers[:3]], expected, atol=1e-4)
        assert answers[0] == answers[1] != answers[2]  # the reference is what it was before the step
        np.testing.assert_allclose(answers[3], local.hidden_states(small_learners.PAIR)[0], atol=1e-3)


@pytest.mark.parametrize("gather", ["every_pass", "once_a_step"])
def test_two_ranks_measure_the_entropies_that_the_local_learner_measures(gather: str) -> None:
    local = small_learners.open_local(small_learners.make_loss("reference"))
    expected = local.entropies(small_learners.LONG_AND_SHORT, temperature=0.7), local.entropies(small_learners.PAIR)
    first, second = run_whole(rank_jobs.measure, gather)
    assert first == second
    for some, other in zip(first, expected, strict=True):
        assert [len(row) for row in some] == [len(row) for row in other]
        np.testing.assert_allclose(sum(some, ()), sum(other, ()), atol=1e-5)


def test_a_checkpoint_of_two_ranks_goes_on_to_the_bit_on_two_and_loads_on_one(tmp_path: Path) -> None:
    [saved, again] = run_whole(rank_jobs.save_midway, tmp_path)
    assert saved == again
    assert run_whole(rank_jobs.go_on, tmp_path) == [saved, saved]
    [alone] = run_whole(rank_jobs.go_on, tmp_path, world=1)
    assert alone[0] == saved[0]
    local = small_learners.open_local(small_learners.make_loss("reference"))
    local.load(tmp_path, steps=1)
    assert hash_weights(local.weights()) == saved[0]
    assert not list(tmp_path.glob("*.metadata"))


@pytest.mark.more
def test_a_checkpoint_may_take_longer_to_write_than_ranks_wait_for_shares(tmp_path: Path) -> None:
    [saved, again] = run_whole(rank_jobs.save_slowly, tmp_path)
    assert saved == again
    local = small_learners.open_local(PolicyLoss())
    local.load(tmp_path, steps=1)
    assert [hash_weights(local.weights())] == saved


@pytest.mark.more
def test_a_full_disk_is_told_on_every_rank_and_all_stay_in_step(tmp_path: Path) -> None:
    for said in run_whole(rank_jobs.save_to_full_disk, tmp_path):
        assert said == f"rank 0 of 2: {tmp_path} could not be written: No space left on device"


def test_a_checkpoint_of_the_local_learner_loads_on_two_ranks(tmp_path: Path) -> None:
    local, samples = (
        small_learners.open_local(small_learners.make_loss("reference")),
        small_learners.make_samples([2, 3]),
    )
    local.learn(samples, count_totals(samples, max_tokens=8))
    local.save(tmp_path)
    for hashes in run_whole(rank_jobs.go_on, tmp_path):
        assert hashes[0] == hash_weights(local.weights())


def test_a_checkpoint_of_another_model_is_refused_on_every_rank(tmp_path: Path) -> None:
    LocalLearner(small_learners.tiny_model(hidden=16), PolicyLoss(), LearnerConfig()).save(tmp_path)
    for said, is_unchanged in run_whole(rank_jobs.load_other, tmp_path):
        assert "rank 0 of 2: checkpoint" in said
        assert "is of another model: 'model.embed_tokens.weight' has the shape" in said
        assert is_unchanged


def test_a_checkpoint_of_another_kind_of_optimizer_is_refused_on_every_rank(tmp_path: Path) -> None:
    local, samples = small_learners.open_local(PolicyLoss()), small_learners.make_samples([2, 3])
    local.learn(samples, count_totals(samples, max_tokens=8))
    local.save(tmp_path)
    stored = load_file(tmp_path / OPTIMIZER)
    save_file({name.replace("exp_avg", "momentum"): value for name, value in stored.items()}, tmp_path / OPTIMIZER)
    for said, is_unchanged in run_whole(rank_jobs.load_other, tmp_path):
        assert re.search("its optimizer holds 'momentum.*', which", said)
        assert is_unchanged


def test_a_loss_that_is_no_number_on_one_rank_stops_all_before_weights_change() -> None:
    ended = run_whole(rank_jobs.meet_not_a_number)
    assert ended[0][0] == ended[1][0]
    assert "rank " in ended[0][0]
    assert "the loss is not finite (nan" in ended[0][0]
    assert all(is_unchanged and np.isfinite(loss) for _, is_unchanged, loss in ended)


@pytest.mark.parametrize("gather", ["every_pass", "once_a_step"])
def test_a_rank_that_raises_is_named_on_all_and_nobody_stays_behind(gather: str) -> None:
    [first, second] = run_on_ranks(rank_jobs.learn_with, small_learners.Raising(), gather)
    assert "this rank has no luck" in str(second.error)
    assert isinstance(first.error, TrainingError)
    assert "rank 0 of 2 stops because rank 1 did" in str(first.error)
    assert "this rank has no luck" in str(first.error)


@pytest.mark.more
def test_a_rank_that_dies_without_a_word_ends_the_others() -> None:
    [first, second] = run_on_ranks(rank_jobs.learn_with, small_learners.Exiting(), "every_pass")
    assert second.error is None
    assert isinstance(first.error, TrainingError)
    assert "lost the others" in str(first.error)


def test_a_rank_holds_its_share_and_a_layer_while_a_model_is_divided_and_never_the_whole() -> None:
    [(_, _, peak_of_leader), (whole, share, peak)] = run_whole(rank_jobs.count_while_opening)
    layer = whole / 12
    assert 0.45 * whole < share < 0.55 * whole
    assert share <= peak < share + 2 * layer
    assert peak_of_leader < whole + 2 * layer  # it has the model, and lets go of what it has given out


@pytest.mark.more
def test_compiled_layers_have_the_same_gradient() -> None:
    _, expected = small_learners.learn_locally(PolicyLoss(), small_learners.make_samples(UNEVEN))
    for _, gradients in run_whole(rank_jobs.learn_compiled):
        assert distance(gradients, expected) < 2e-6


def test_a_gradient_that_is_not_shortened_moves_weights_as_in_one_process() -> None:
    local, samples = (
        small_learners.open_local(PolicyLoss(), **small_learners.UNCLIPPED),
        small_learners.make_samples(UNEVEN),
    )
    before = {name: value.clone().numpy() for name, value in local.weights().items()}
    local.learn(samples, count_totals(samples, max_tokens=8))
    expected = {name: value.numpy() - before[name] for name, value in local.weights().items()}
    for weights in run_whole(rank_jobs.step_unclipped):
        assert distance({name: value - before[name] for name, value in weights.items()}, expected) < 1e-3


@pytest.mark.parametrize(
    "setting",
    [
        {"optimizer": "adamw_8bit"},
        {"bfloat16_weights": "float32_masters"},
        {"apply_gradients": "as_they_come", "max_grad_norm": "off"},
    ],
)
def test_settings_for_one_gpu_are_refused_in_shares(setting: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=f"{next(iter(setting))} is .*, which the sharded learner does not support"):
        ShardedLearnerConfig(**setting)


@pytest.mark.more
def test_a_model_that_cannot_be_packed_is_refused_on_every_rank() -> None:
    for end in run_on_ranks(rank_jobs.open_unpackable):
        assert isinstance(end.error, ConfigError)
        assert "a sharded learner reads packs only, take the local learner" in str(end.error)


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        (rank_jobs.open_unsendable, "cannot be sent to the other ranks"),
        (rank_jobs.open_quantised, "is a Quantised of float32, which cannot be divided"),
    ],
)
def test_a_model_that_cannot_be_divided_is_refused_by_rank_0_and_named_by_the_others(job: Any, reason: str) -> None:
    [first, second] = run_on_ranks(job)
    assert isinstance(first.error, ConfigError)
    assert reason in str(first.error)
    assert "rank 1 of 2 stops because rank 0 did" in str(second.error)
    assert reason in str(second.error)


def test_an_adapter_is_merged_from_shares_as_the_local_learner_merges_it(tmp_path: Path) -> None:
    pytest.importorskip("peft")
    from transformers import AutoModelForCausalLM

    for before, after in run_whole(rank_jobs.export_adapter, tmp_path):
        assert before == after
    local = LocalLearner(small_learners.make_adapted_model("float32"), PolicyLoss(), LearnerConfig())
    local.load(tmp_path / "adapter", steps=1)
    local.export(tmp_path / "local")
    merged, expected = (AutoModelForCausalLM.from_pretrained(tmp_path / name) for name in ("merged", "local"))
    assert hash_weights(dict(merged.named_parameters())) == hash_weights(dict(expected.named_parameters()))


def test_ranks_on_different_kinds_of_devices_are_refused() -> None:
    store = HashStore()
    for rank, kind in enumerate(["cpu", "cuda"]):
        store.set(f"place of rank {rank}", kind)
    with pytest.raises(ConfigError, match="rank 0 of 2 computes on cpu, but rank 1 on cuda"):
        check_same_places(store, 0, 2, torch.device("cpu"))
    check_same_places(store, 0, 1, torch.device("cpu"))
