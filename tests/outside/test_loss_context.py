"""A loss over groups, from outside: it needs a first pass, and any split into micro-batches gives one gradient."""

from __future__ import annotations

import copy
import dataclasses
import math
import random
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from safetensors.torch import load_file

from groupwise.data.samples import Sample, Totals, count_totals
from groupwise.learner.config import LearnerConfig
from groupwise.learner.local import LocalLearner, merge_summaries
from groupwise.learner.micro_batches import make_micro_batches
from groupwise.losses import TokenColumns
from groupwise.models.pack import pack, pad_within_budget
from groupwise.parts.part import find_part_class
from groupwise.report.derived_credit import DerivedCredit
from groupwise.report.explain import explain_channels, find_step
from groupwise.store.journal import Journal
from groupwise.store.run_folder import JOURNAL
from groupwise.training.config.run_file import load_run
from groupwise.training.loop import train
from groupwise.training.open_run import open_run
from tests.outside.running import train_from_file
from tests.run_file_sections import TINY_WORD_WORLD
from tests.unit.learner.learners import rollouts, tiny


def disco(**fields: Any) -> Any:
    return find_part_class("loss", "contrast:Disco")(**fields)


# The arithmetic, worked by hand: s = -0.5, -0.7 solved; -0.6, -1.2 failed; J = -0.6 - tau log mean exp(s / tau).
WORKED = [
    (10.0, 0.295501, (0.514996, 0.485004)),
    (1.0, 0.255659, (0.645656, 0.354344)),
    (0.1, 0.069067, (0.997527, 0.002473)),
]


def columns_of(tokens: Sequence[Any]) -> TokenColumns:
    """Tokens (logp, old, return, trains, sample, trajectory, group) in float64, with their gradients asked for."""
    logp, old, earned, trains, sample, trajectory, group = zip(*tokens, strict=True) if tokens else ((),) * 7
    numbers = {"dtype": torch.float64}
    ids = {"dtype": torch.int64}
    return TokenColumns(
        logp=torch.tensor(logp, **numbers).requires_grad_(),
        logp_old=torch.tensor(old, **numbers),
        logp_behaviour=torch.tensor(old, **numbers),
        advantage=torch.zeros(len(tokens), **numbers),
        mask=torch.tensor(trains, dtype=torch.bool),
        sample=torch.tensor(sample, **ids),
        step=torch.tensor(sample, **ids),
        trajectory=torch.tensor(trajectory, **ids),
        group=torch.tensor(group, **ids),
        named={"episode_return": torch.tensor(earned, **numbers)},
    )


def totals_of(tokens: Sequence[Any]) -> Any:
    return Totals.count(
        tokens=[int(token[3]) for token in tokens],
        trajectory=[token[5] for token in tokens],
        step=[token[4] for token in tokens],
        group=[token[6] for token in tokens],
        max_tokens=4,
    )


def learn_in_parts(loss: Any, tokens: Sequence[Any], parts: Sequence[Sequence[int]]) -> tuple[float, list[float]]:
    """The loss and its slope by each token's log-prob, the tokens dealt out to micro-batches by position."""
    totals = totals_of(tokens)
    columns = [columns_of([tokens[position] for position in part]) for part in parts]
    with torch.no_grad():
        summary = merge_summaries(loss, (loss.first_pass(each, totals) for each in columns))
    value, slopes = 0.0, [0.0] * len(tokens)
    for part, each in zip(parts, columns, strict=True):
        share = loss(each, totals, summary).loss
        (by_logp,) = torch.autograd.grad(share, each.logp)
        value += float(share.detach())
        for position, slope in zip(part, by_logp.tolist(), strict=True):
            slopes[position] = slope
    return value, slopes


def oracle(loss: Any, logp: Any, tokens: Sequence[Any]) -> Any:
    """The formulas of the paper over the whole batch at once, with autograd and without a first pass."""
    kept = [number for number, token in enumerate(tokens) if token[3]]
    by_rollout: dict[tuple[int, int], list[int]] = {}
    for number in kept:
        by_rollout.setdefault((tokens[number][6], tokens[number][5]), []).append(number)
    terms = []
    for group in {group for group, _ in by_rollout}:
        solved, failed = [], []
        for (own, _), numbers in by_rollout.items():
            if own == group:
                old = torch.tensor([tokens[n][1] for n in numbers], dtype=logp.dtype)
                values = logp[numbers] if loss.score == "log_likelihood" else (logp[numbers] - old).exp()
                (solved if tokens[numbers[0]][2] > 0 else failed).append(values.mean())
        if solved and failed:
            hardest = loss.tau * torch.stack([(s / loss.tau).exp() for s in failed]).mean().log()
            terms.append(torch.stack(solved).mean() - hardest)
        else:
            terms.append(torch.zeros((), dtype=logp.dtype))
    if not kept:
        return (logp * 0).sum()
    kl = torch.stack([tokens[number][1] - logp[number] for number in kept]).mean()
    return -torch.stack(terms).mean() + loss.stiffness / 2 * (kl - loss.max_kl).clamp(min=0) ** 2


def draw_tokens(rng: random.Random) -> list[Any]:
    """Groups of rollouts of several samples; some tokens do not train, and hold rubbish."""
    tokens, sample, trajectory = [], 0, 0
    for group in range(rng.randint(1, 3)):
        for _ in range(rng.randint(1, 4)):
            earned = rng.choice([0.0, 1.0])
            for _ in range(rng.randint(1, 3)):
                for _ in range(rng.randint(1, 3)):
                    trains = rng.random() < 0.85
                    logp = -rng.uniform(0.05, 2.0) if trains else math.nan
                    old = logp + rng.gauss(0.05, 0.1)
                    tokens.append((logp, old, earned if trains else math.inf, trains, sample, trajectory, group))
                sample += 1
            trajectory += 1
    return tokens


def deal_out(rng: random.Random, tokens: Sequence[Any]) -> list[list[int]]:
    """A random split that keeps samples whole and cuts trajectories and groups; some micro-batches may be empty."""
    num = rng.randint(1, 4)
    place = {token[4]: rng.randrange(num) for token in tokens}
    return [[i for i, token in enumerate(tokens) if place[token[4]] == part] for part in range(num)]


@pytest.mark.parametrize(("tau", "objective", "weights"), WORKED)
def test_the_loss_is_that_of_the_paper(tau: float, objective: float, weights: tuple[float, float]) -> None:
    scores = [-0.5, -0.7, -0.6, -1.2]
    tokens = [(s, s, float(i < 2), True, i, i, 0) for i, s in enumerate(scores)]
    value, slopes = learn_in_parts(disco(tau=tau), tokens, [[0, 1, 2, 3]])
    assert value == pytest.approx(-objective, abs=1e-6)
    assert slopes == pytest.approx([-0.5, -0.5, *weights], abs=1e-6)


def test_the_penalty_is_that_of_the_paper() -> None:
    """One token a group of its own, KL 3e-4: beyond by 2e-4, so the slope is 1000 x 2e-4 and the value half of it."""
    tokens = [(-1.0, -1.0 + 3e-4, 1.0, True, 0, 0, 0)]
    value, slopes = learn_in_parts(disco(), tokens, [[0]])
    assert value == pytest.approx(2e-5, rel=1e-6)
    assert slopes == pytest.approx([-0.2], rel=1e-6)


@given(seed=st.integers(0, 10**9), score=st.sampled_from(["log_likelihood", "ratio"]))
def test_any_split_gives_the_loss_and_gradient_of_the_whole_batch(seed: int, score: str) -> None:
    rng = random.Random(seed)
    tokens = draw_tokens(rng)
    loss = disco(tau=rng.choice([0.3, 1.0, 10.0]), score=score, max_kl=0.01, stiffness=20.0)
    logp = torch.tensor([token[0] for token in tokens], dtype=torch.float64).nan_to_num().requires_grad_()
    expected = oracle(loss, logp, tokens)
    (slope,) = torch.autograd.grad(expected, logp)
    for parts in ([list(range(len(tokens)))], deal_out(rng, tokens), deal_out(rng, tokens)):
        value, slopes = learn_in_parts(loss, tokens, parts)
        assert value == pytest.approx(float(expected.detach()), rel=1e-9, abs=1e-10)
        assert slopes == pytest.approx(slope.tolist(), rel=1e-9, abs=1e-10)


def samples_in_groups() -> list[Sample]:
    """Two groups of four rollouts whose prompts grow, half of them solved."""
    return [
        dataclasses.replace(
            sample,
            group=sample.trajectory // 4,
            columns={"episode_return": float(sample.trajectory % 2 == 0)},
        )
        for sample in rollouts(num=8)
    ]


def last_gradient(loss: Any, samples: Sequence[Sample], *, rows: bool = False, **config: Any) -> tuple[float, Any]:
    """The gradient of the second of two passes, whose policy has moved, so that the penalty acts too."""
    learner = LocalLearner(
        tiny()[0], loss, LearnerConfig(learning_rate=1e-2, passes=2, max_grad_norm=math.inf, **config)
    )
    if rows:  # as for a model that does not run packed
        learner.forward.lay_out = pad_within_budget  # type: ignore[method-assign,assignment]
    seen: list[Any] = []
    hook = learner.optimizer.register_step_pre_hook(
        lambda *_: seen.append(torch.cat([value.grad.flatten().clone() for value in learner.model.parameters()]))
    )
    metrics = learner.learn(samples, count_totals(samples, max_tokens=4)).metrics
    hook.remove()
    return metrics["loss/total"], seen[-1]


SPLITS = [
    {"token_budget": 8192},
    {"token_budget": 8192, "share_prefixes": False},
    {"token_budget": 40},
    {"token_budget": 12},
    {"token_budget": 1},
    {"token_budget": 30, "share_prefixes": False},
    {"token_budget": 40, "rows": True},
]


def test_the_learner_makes_one_gradient_of_every_split_and_layout() -> None:
    loss, samples = disco(tau=0.5, stiffness=50.0), samples_in_groups()
    total, expected = last_gradient(loss, samples, **SPLITS[0])
    assert float(expected.norm()) > 1e-3
    for split in SPLITS[1:]:
        value, gradient = last_gradient(loss, samples, **split)
        assert value == pytest.approx(total, rel=1e-4)
        assert float((gradient - expected).norm() / expected.norm()) < 1e-4, split


def test_the_learners_gradient_is_that_of_the_whole_batch_at_once() -> None:
    """The oracle runs each sample alone through the model's own forward pass, and differentiates the formulas."""
    loss, samples, model = disco(tau=0.5), samples_in_groups(), tiny()[0]
    by_hand = copy.deepcopy(model).eval().double()
    logps, tokens = [], []
    for number, sample in enumerate(samples):
        logits = by_hand(input_ids=torch.tensor([sample.token_ids])).logits[0, len(sample.prompt_ids) - 1 : -1]
        own = logits.log_softmax(-1).gather(1, torch.tensor(sample.response_ids)[:, None])[:, 0]
        logps.append(own)
        earned = sample.columns["episode_return"]
        tokens += [(0.0, float(old), earned, True, number, sample.trajectory, sample.group) for old in own.detach()]
    oracle(loss, torch.cat(logps), tokens).backward()
    expected = torch.cat([value.grad.flatten() for value in by_hand.parameters()])
    learner = LocalLearner(model, loss, LearnerConfig(learning_rate=1e-2, token_budget=25, max_grad_norm=math.inf))
    seen: list[Any] = []
    learner.optimizer.register_step_pre_hook(
        lambda *_: seen.append(torch.cat([value.grad.flatten().clone() for value in model.parameters()]))
    )
    learner.learn(samples, count_totals(samples, max_tokens=4))
    assert float((seen[0].double() - expected).norm() / expected.norm()) < 1e-4


def test_padded_rows_give_the_columns_of_packs() -> None:
    samples = samples_in_groups()
    columns_by_layout = []
    for layouts in (pack(samples, token_budget=40), pad_within_budget(samples, token_budget=40)):
        rows = set()
        for micro in make_micro_batches(samples, layouts):
            columns = micro.columns(torch.zeros(len(micro.trajectory)), None)
            assert columns.group is not None
            earned = columns.column("episode_return").tolist()
            rows |= set(zip(columns.trajectory.tolist(), columns.group.tolist(), earned, strict=True))
        columns_by_layout.append(rows)
    assert columns_by_layout[0] == columns_by_layout[1] == {(n, n // 4, float(n % 2 == 0)) for n in range(8)}


WORD_RUN = f"""
seed = 0
threads = 1
{TINY_WORD_WORLD}
[rollout]
max_tokens = 2
group_size = 48

[training]
updates = 2
tasks = 2

[training.learner]
learning_rate = 0.01
passes = 2

[evaluation]
tasks = 0
"""
"""Repeating a word: some of so many rollouts are right from the first, so that there is something to tell apart."""

DISCO_RUN = f"""
{WORD_RUN}
[algorithm]
method = "grpo"

[algorithm.loss]
kind = "contrast:Disco"
tau = 1.0
"""

ECONOMY_RUN = f"""
{WORD_RUN}
[algorithm]
method = "grpo"
loss = {{ kind = "economy:ChannelLoss", weights = {{ brevity = 0.15 }} }}

[algorithm.channels.brevity]
kind = "relative"
by = "by_task"
of = {{ kind = "column", name = "tokens" }}
"""


def metrics_of(run: Path) -> dict[str, float]:
    with Journal(run / JOURNAL, read_only=True) as journal:
        return {name: journal.curve(name)[-1][1] for name in journal.metric_names()}


def test_a_run_file_alone_trains_it_whatever_the_token_budget(tmp_path: Path) -> None:
    whole = train_from_file(tmp_path, DISCO_RUN)
    assert metrics_of(whole)["extra/disco_kl"] > 0  # the second pass is measured against the first
    split = load_run(tmp_path / "run.toml", overrides=["training.learner.token_budget=30"])
    run = open_run(split, tmp_path / "split")
    train(run)
    start, end, expected = (
        load_file(folder / "checkpoints" / number / "model.safetensors")
        for folder, number in ((whole, "0000"), (tmp_path / "split", "0002"), (whole, "0002"))
    )
    moved = math.sqrt(sum(float((expected[name] - start[name]).square().sum()) for name in start))
    apart = math.sqrt(sum(float((expected[name] - end[name]).square().sum()) for name in start))
    assert moved > 0.1
    assert apart < 1e-2 * moved
    assert metrics_of(tmp_path / "split")["loss/total"] == pytest.approx(metrics_of(whole)["loss/total"], rel=1e-3)


def test_channels_train_and_are_explained_one_by_one(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text(ECONOMY_RUN, encoding="utf-8")
    config = load_run(file)
    run = open_run(config, tmp_path / "run")
    train(run)
    assert metrics_of(tmp_path / "run")["extra/channel/brevity"] > 0
    with Journal(tmp_path / "run" / JOURNAL, read_only=True) as journal:
        played = list(journal.trajectories(1))
    tokens = [len(row["response_ids"]) for rollout in played for row in rollout["steps"]]
    again = DerivedCredit.compute(played, config.algorithm)
    step = find_step(again.table, task=played[0]["task"], rollout=played[0]["rollout"], step=0)
    explanation = explain_channels(again.table, config.algorithm, step)
    own = [n for n, rollout in zip(tokens, played, strict=True) if rollout["task"] == played[0]["task"]]
    spread = statistics.stdev(own) + 1e-6
    assert explanation["brevity"].value == pytest.approx((tokens[0] - statistics.fmean(own)) / spread)
    assert explanation["brevity"].largest_gap() < 1e-9
