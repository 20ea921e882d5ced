"""What `explain --token` says is what the learner was handed, to the bit: every method, every token; pairs too."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

pytest.importorskip("torch")

from groupwise import Algorithm, methods
from groupwise.cli.main import make_app
from groupwise.data.samples import Sample
from groupwise.data.token_table import TokenTable
from groupwise.learner.local import LocalLearner
from groupwise.report.derived_credit import DerivedCredit
from groupwise.report.explained_step import explain_token
from groupwise.report.groups import read_groups
from groupwise.report.prompts import TokenTexts, make_response_decoder
from groupwise.training import loop
from groupwise.training.run_reader import RunFolder
from groupwise.training.samples import CreditedBatch, make_samples
from tests.equivalence.example_runs import EXAMPLES, UPDATES, play_example

INSIDE = [name for name in methods.names() if methods.build(name).token_credit is not None]
PAIRED = [name for name in methods.names() if methods.build(name).pairing is not None]


@dataclass(frozen=True, kw_only=True)
class Played:
    folder: Path
    samples: Mapping[tuple[str, int, int], Sample]
    """What the learner was handed in the last update, by task, rollout and step."""
    pairs: set[tuple[Any, ...]]
    """The pairs beside them: task and rollout of winner and loser, their steps, gap and weight."""


def play_watched(name: str, folder: Path) -> Played:
    """A run of two updates whose learner tells what it is handed, and learns."""
    handed: list[tuple[Sequence[Sample], Any]] = []
    names: list[list[tuple[str, int]]] = []
    learn = LocalLearner.learn

    def watch_learner(self: LocalLearner, samples: Sequence[Sample], totals: Any) -> Any:
        handed.append((samples, totals))
        return learn(self, samples, totals)

    def watch_batch(batch: CreditedBatch) -> list[Sample]:
        names.append([(trajectory.task.id, trajectory.rollout) for trajectory in batch.trajectories])
        return make_samples(batch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalLearner, "learn", watch_learner)
        patch.setattr(loop, "make_samples", watch_batch)
        play_example(EXAMPLES / "methods" / f"{name}.toml", folder)
    (samples, totals), of_last = handed[-1], names[-1]
    return Played(
        folder=folder,
        samples={(*of_last[sample.trajectory], sample.step): sample for sample in samples},
        pairs={
            (of_last[pair.winner], of_last[pair.loser], pair.winner_step, pair.loser_step, pair.gap, pair.weight)
            for pair in totals.pair_members
        },
    )


@pytest.fixture(scope="module", params=INSIDE)
def played(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Played:
    return play_watched(request.param, tmp_path_factory.mktemp(request.param))


def identify(row: Mapping[str, Any]) -> tuple[str, int, int]:
    return row["task"], row["rollout"], row["step"]


def to_bits(number: float) -> bytes:
    return struct.pack("<d", number)


def derive_last_update(folder: Path) -> tuple[DerivedCredit, TokenTable]:
    with RunFolder(folder) as run:
        algorithm: Algorithm = run.read_algorithm()
        records = list(run.journal.trajectories(UPDATES))
        derived = DerivedCredit.compute(records, algorithm, run.journal.states_before(UPDATES))
    return derived, TokenTable.from_rows(derived.table, derived.rows)


@pytest.mark.few(4)
def test_every_token_is_explained_by_the_number_that_trained(played: Played) -> None:
    derived, tokens = derive_last_update(played.folder)
    assert len(played.samples) == len(derived.rows)
    trained, lines = 0, 0
    for number, row in enumerate(derived.rows):
        sample, step = played.samples[identify(row)], int(derived.table.step_of_row[number])
        first, advantages = tokens.num_forced(step), sample.advantage
        assert isinstance(advantages, tuple)
        flags = sample.trained or (True,) * len(advantages)
        for place, (advantage, is_trained) in enumerate(zip(advantages, flags, strict=True)):
            explained = explain_token(
                derived.algorithm, derived.table, derived.credit, tokens, step=step, position=first + place
            )
            assert explained.token == sample.response_ids[place]
            assert explained.trains == (is_trained and sample.trains)
            if not explained.trains:
                assert explained.formula.startswith("it does not train: ")
                assert explained.formula != "it does not train: nothing reads its number"
                continue
            assert explained.value is not None
            assert to_bits(explained.value) == to_bits(advantage)
            assert explained.gap < 1e-12
            assert explained.not_derived == ""
            trained, lines = trained + 1, lines + len(explained.lines)
    assert trained
    assert lines >= trained, "the credit of its step, and what was worked out on the way"


@pytest.mark.few(2)
def test_groups_show_the_credit_that_trained_and_the_text_it_stands_on(played: Played) -> None:
    with RunFolder(played.folder) as run:
        groups = read_groups(run, UPDATES)
    steps = {
        (rollout.task, rollout.rollout, step.step): step
        for group in groups
        for rollout in group.members
        for step in rollout.steps
    }
    derived, _ = derive_last_update(played.folder)
    texts, decode = TokenTexts(played.folder), make_response_decoder(played.folder)
    assert decode is not None
    for row in derived.rows:
        sample, tokens = played.samples[identify(row)], steps[identify(row)].tokens
        assert tokens is not None
        assert isinstance(sample.advantage, tuple)
        assert list(map(to_bits, tokens.values.tolist())) == list(map(to_bits, sample.advantage))
        flags = sample.trained or (True,) * len(sample.advantage)
        assert tokens.trains.tolist() == [flag and sample.trains for flag in flags]
        pieces = texts.cut(tokens.ids)
        assert pieces is not None
        assert len(pieces) == len(tokens.ids)
        words = iter("".join(pieces).split())
        assert all(word in words for word in decode(tokens.ids).split()), "the same, but for special tokens"


def test_both_commands_tell_a_token_with_its_text_and_refuse_one_that_is_not_there(played: Played) -> None:
    derived, _ = derive_last_update(played.folder)
    row = derived.rows[0]
    asked = ["explain", played.folder, "--task", f"{row['task']}@{UPDATES}", "--rollout", row["rollout"], "--step", 0]
    result = CliRunner().invoke(make_app(), [*map(str, asked), "--token", "1"])
    assert result.exit_code == 0, result.output
    assert f"token 1, id {row['response_ids'][1]}" in result.output
    assert "»" in result.output
    missing = CliRunner().invoke(make_app(), [*map(str, asked), "--token", "999"])
    last = len(row["response_ids"]) - 1
    assert f"has no token 999; its tokens run from 0 to {last}" in str(missing.exception)


@pytest.mark.few(2)
@pytest.mark.parametrize("name", PAIRED)
def test_the_pairs_that_are_shown_are_those_that_trained(name: str, tmp_path: Path) -> None:
    played = play_watched(name, tmp_path)
    with RunFolder(played.folder) as run:
        shown = [pair for group in read_groups(run, UPDATES) for pair in group.pairs or ()]
    assert shown
    assert {
        ((pair.task, pair.winner), (pair.task, pair.loser), pair.winner_step, pair.loser_step, pair.gap, pair.weight)
        for pair in shown
    } == played.pairs
    assert all(f"{pair.why}; margin {pair.gap:.6g}" in pair.describe() for pair in shown)
