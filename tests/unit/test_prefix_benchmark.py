"""The prefix benchmark: its layouts train the same, its recordings come back, its counts are those of the formulas."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
import torch

from benchmarks.prefix import __main__ as command
from benchmarks.prefix.__main__ import Result, without_paths
from benchmarks.prefix.gate import little_shared
from benchmarks.prefix.layouts import LAYOUTS, pack_forced, pack_shared_prompts
from benchmarks.prefix.measure import Update, apart, gradient
from benchmarks.prefix.plot import draw, points
from benchmarks.prefix.recordings import DATA, HISTORIES, Recording, distinct, make_up, open_recording
from benchmarks.prefix.shapes import llama, work
from benchmarks.prefix.table import tables
from groupwise.data.samples import Sample
from groupwise.models.forest import merge_sequences
from groupwise.models.forward import compute_token_logps
from groupwise.models.pack import Pack, pack, pad_rows


def sample(prompt: tuple[int, ...], response: tuple[int, ...], number: int = 0) -> Sample:
    return Sample(prompt_ids=prompt, response_ids=response, advantage=1.0, trajectory=number, step=0, group=0)


@pytest.fixture(scope="module")
def samples() -> tuple[Sample, ...]:
    return make_up("small", "window 2", num_tasks=1, rollouts=3).samples[:30]


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_holds_each_sample_once_and_gives_the_gradient_of_padded_rows(
    name: str, samples: tuple[Sample, ...]
) -> None:
    net = llama(hidden=32, layers=2, heads=4, kv_heads=2, vocabulary=2_000)
    layouts = LAYOUTS[name](samples, 600)
    assert len(layouts) > 2
    assert max(map(len, layouts)) <= 600
    assert Counter(number for layout in layouts for number in layout.members) == Counter(range(len(samples)))
    expected = gradient(net, Update.of(pad_rows(samples), samples, "cpu"))
    assert apart(gradient(net, Update.of(layouts, samples, "cpu")), expected) < 2e-6


def test_shared_prompts_share_whole_prompts_and_nothing_else() -> None:
    some = [
        sample((1, 2, 3), (4, 5, 6)),
        sample((1, 2, 3), (4, 5, 7)),  # the response begins as the one before
        sample((1, 2, 8), (4, 5)),  # the prompt differs in one token
        sample((1, 2, 3), (9,)),
        sample((1, 2), (3, 4, 5)),  # the prompt is the beginning of another
    ]
    (layout,) = pack_shared_prompts(some, 100)
    assert isinstance(layout, Pack)
    assert len(layout) == (3 + 2 + 2 + 0) + (3 + 1) + (2 + 2)
    assert layout.largest_id == 9
    net = llama(hidden=32, layers=2, heads=4, kv_heads=2, vocabulary=10)
    (rows,) = pad_rows(some)
    assert torch.equal(layout.target, rows.target)
    torch.testing.assert_close(
        compute_token_logps(net, layout)[0], compute_token_logps(net, rows)[0], rtol=1e-5, atol=1e-6
    )


def test_a_recording_comes_back_from_its_file(tmp_path: Path) -> None:
    recording = make_up("alfworld", "anchored", num_tasks=2, rollouts=3)
    saved = Recording(source="alfworld", history="anchored", samples=recording.samples)
    saved.save(tmp_path)
    assert open_recording(tmp_path, "alfworld", "anchored") == saved
    assert open_recording(tmp_path, "alfworld", "full").made_up


def test_groups_are_the_first_rollouts_at_as_many_tasks_as_fit() -> None:
    recording = make_up("small", "full", num_tasks=3, rollouts=4)
    some = recording.groups(rollouts=2)
    assert sorted({one.trajectory for one in some}) == [0, 1, 4, 5, 8, 9]
    two_tasks = sum(len(one.token_ids) for one in some if one.group < 2)
    assert {one.group for one in recording.groups(rollouts=2, raw_tokens=two_tasks)} == {0, 1}
    assert {one.group for one in recording.groups(rollouts=2, raw_tokens=1)} == {0}


@pytest.mark.parametrize("source", ["household", "alfworld", "dialogue", "published"])
@pytest.mark.parametrize("history", HISTORIES)
def test_the_recorded_files_are_there_and_share_prefixes(source: str, history: str) -> None:
    recording = Recording.load(DATA, source, history)
    rollouts = Counter(one.trajectory for one in recording.samples)
    assert sorted(rollouts) == list(range(16 * (32 if source == "household" else 4)))
    assert max(rollouts.values()) <= 30
    assert merge_sequences([sample.token_ids for sample in recording.samples]).token_ratio > 1.5


def test_groups_are_cut_by_tasks_rollouts_and_tokens() -> None:
    recording = make_up("small", "window 2", num_tasks=3, rollouts=4)
    two = recording.groups(rollouts=2, tasks=2)
    assert {(one.group, one.trajectory) for one in two} == {(0, 0), (0, 1), (1, 4), (1, 5)}
    first = sum(len(one.token_ids) for one in two if one.group == 0)
    assert {one.group for one in recording.groups(rollouts=2, raw_tokens=first)} == {0}


def test_where_sharing_begins_to_pay_is_measured_without_the_gate(tmp_path: Path) -> None:
    net = llama(hidden=16, layers=1, heads=2, kv_heads=2, vocabulary=40_000)
    cases = little_shared(net, tmp_path, budget=8_000, device="cpu", repeats=1, tasks=1)  # made up: no file is there
    assert list(cases) == ["rollouts: 1", "rollouts: 2"]
    assert all(1 < case["fewer_tokens"] < 2 and case["times_as_fast_as_packed"] > 0 for case in cases.values())
    lines = tables({"little shared": cases}).splitlines()
    assert f"- {cases['rollouts: 2']['fewer_tokens']:.2f}x fewer tokens, no gate: " in lines[-1]


def test_distinct_samples_share_their_first_token_alone(samples: tuple[Sample, ...]) -> None:
    apart = distinct(samples, vocabulary=2_000)
    assert [len(one.prompt_ids) for one in apart] == [len(one.prompt_ids) for one in samples]
    forest, raw = merge_sequences([one.token_ids for one in apart]), sum(len(one.token_ids) for one in samples)
    assert len(forest) == raw - (len(samples) - 1)
    (tree,), (rows,) = pack_forced(apart, 10_000), LAYOUTS["shared"](apart, 10_000)
    assert len(tree) == len(rows) - (len(samples) - 1)  # the gate leaves rows side by side


def test_operations_are_counted_on_the_tokens_computed() -> None:
    config = llama(hidden=8, layers=3, heads=2, kv_heads=1, vocabulary=11).config
    (layout,) = pack([sample((1, 2), (3, 4)), sample((1, 2), (5,))], token_budget=10, gate=0.0)
    # Tokens 1, 2, 3 are computed, of which 2 and 3 predict; they attend to 1 + 2 + 3 tokens.
    weights = 3 * (8 * 8 + 2 * 8 * 4 + 8 * 8 + 3 * 8 * 24)
    body = 2 * weights * 3 + 4 * 8 * 3 * 6
    head = 2 * 11 * 8 * 2
    effort = work(config, [layout], checkpointed=True)
    assert effort.useful == 3 * body + 3 * head
    assert effort.done == 4 * body + 4 * head
    assert work(config, [layout], checkpointed=False).done == 3 * body + 4 * head


def test_a_section_that_fails_is_written_down_and_the_others_go_on(tmp_path: Path) -> None:
    result = Result({}, tmp_path / "result.json")
    result.measure({"bad": lambda: 1 / 0, "good": lambda: {"seconds": 1 / 3}}, result.content)
    assert json.loads((tmp_path / "result.json").read_text()) == {
        "bad": {"error": "ZeroDivisionError: division by zero"},
        "good": {"seconds": 0.33333},
    }


def test_a_recorded_command_names_no_folder() -> None:
    words = ["--part", "gpu", "--write", "there/x.json", "--quick", "--data=here"]
    assert without_paths(words) == ["--part", "gpu", "--quick"]


def test_a_shape_has_its_own_budget_and_leaves_the_others_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "found.json"
    file.write_text(json.dumps({"shapes": {"1.5B": {"kept": True}, "tiny": {"kept": False}}}))
    monkeypatch.setattr(command.on_gpu.Bench, "sections", lambda bench: {"budget": lambda: bench.settings.budget})
    monkeypatch.setattr(command.on_gpu, "general_sections", lambda settings: {})
    words = ["prefix", "--part", "gpu", "--device", "cpu", "--shape", "tiny", "--write", str(file)]
    monkeypatch.setattr("sys.argv", words)
    command.main()
    shapes = json.loads(file.read_text())["shapes"]
    assert shapes["1.5B"] == {"kept": True}
    assert (shapes["tiny"]["budget"], shapes["tiny"]["raw_tokens"]) == (4_096, 8 * 4_096)


ROW = {"tokens": 100, "raw_tokens_per_second": 5000.0, "utilisation": 0.5, "peak_gigabytes": 2.0}
CASE = {
    "source": "alfworld",
    "history": "full",
    "rollouts": 8,
    "checkpointed": False,
    "made_up": False,
    "by_layout": {
        "shared": ROW | {"seconds": 1.0},
        "packed": ROW | {"seconds": 3.6, "tokens": 400},
        "prompts shared": ROW | {"seconds": 2.4},
    },
    "times_faster_than": {"packed": 3.6, "prompts shared": 2.4},
    "fewer_tokens": 4.0,
    "share_of_ratio": 0.9,
}
SHAPE = {"token_budget": 16384, "matrix product": {"teraflops": 700.0}, "one": CASE, "two": {"error": "no"}}
RESULT = {"shapes": {"1.5B": SHAPE}}


def test_a_result_becomes_a_table() -> None:
    row = "| alfworld, full, 8 | 4.00x | **3.60x** | 0.90 | 2.40x | - | - | 5,000 | 50% / 50% | 2.0 / 2.0 |"
    lines = tables(RESULT).splitlines()
    assert lines[0] == "1.5B shape, 16,384 tokens a micro-batch, matrix product 700 TFLOP/s:"
    assert lines[4] == row
    assert lines[-1] == "- two: no"


def test_a_result_becomes_a_drawing() -> None:
    dots = points(RESULT)
    assert [(one.fewer_tokens, one.faster, one.is_ours) for one in dots] == [(4.0, 3.6, True), (4.0, 1.5, False)]
    assert "1.5B, alfworld, full, 8: 3.60x with 4.00x fewer tokens" in draw(dots)
