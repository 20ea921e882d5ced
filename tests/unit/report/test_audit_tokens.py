"""The audit token by token: what methods make of tokens, held against plain loops; what is refused; files in parts."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from groupwise import Algorithm, ConfigError, RecordError, StepTable, methods
from groupwise.credit import DiscountedTokens, FirstTokens
from groupwise.data.token_table import TokenTable
from groupwise.methods.spo_chain import SegmentCredit
from groupwise.report.audit import Audit, audit_tables
from groupwise.report.audit_tokens import TokenColumn
from groupwise.store.formats import open_rollouts
from tests.oracles.random_answers import add_segments, random_answers, tables_of
from tests.unit.cli.calls import invoke, show_json, words
from tests.unit.cli.files import row, write
from tests.unit.tables import single_steps

STEPS = methods.dr_grpo()
HALVED = Algorithm(advantage=STEPS.advantage, token_credit=DiscountedTokens(gamma=0.5))
BEGUN = Algorithm(advantage=STEPS.advantage, token_credit=FirstTokens(count=1))


def audit(table: StepTable, tokens: TokenTable, algorithms: dict[str, Algorithm]) -> Audit:
    return audit_tables([table], algorithms, read_tokens=lambda _: tokens)


def columns_of(result: Audit) -> list[TokenColumn]:
    assert result.token_methods is not None
    return result.token_methods


# Credit of two rollouts 1 and -1; three tokens and one.
TABLE = single_steps([3, 1])
TOKENS = TokenTable.from_rows(TABLE, [{"response_ids": [5, 6, 7]}, {"response_ids": [8]}])


def test_tokens_by_hand() -> None:
    """Steps: 1 1 1 | -1. Halved: 1/4 1/2 1 | -1. Begun: 1 - - | -1."""
    result = audit(TABLE, TOKENS, {"steps": STEPS, "halved": HALVED, "begun": BEGUN})
    steps, halved, begun = columns_of(result)
    assert [column.has_own_credit for column in (steps, halved, begun)] == [False, True, True]
    assert [(column.tokens, column.trained_tokens) for column in (steps, halved, begun)] == [(4, 4), (4, 4), (4, 2)]
    assert (steps.mean_size, halved.mean_size, begun.mean_size) == (1.0, 2.75 / 4, 1.0)
    assert (steps.inside_share, begun.inside_share) == (0.0, 0.0)
    # Of the first step, mean 7/12; over all, mean 0.1875 and squares 2.3125.
    inside = (1 / 4 - 7 / 12) ** 2 + (1 / 2 - 7 / 12) ** 2 + (1 - 7 / 12) ** 2
    assert halved.inside_share == pytest.approx(inside / (2.3125 - 4 * 0.1875**2))
    assert begun.both_signed == {"steps": 2, "halved": 2}
    assert begun.correlation == {"steps": 1.0, "halved": pytest.approx(1.0)}
    assert result.token_movers is not None
    assert result.token_movers == [], "tokens that both train have the same credit under the first and the last"
    assert result.findings[-4:] == [
        "Under halved 100.0 % of the tokens train; 13.4 % of the variance of their advantages is inside steps.",
        "Under begun 50.0 % of the tokens train; 0.0 % of the variance of their advantages is inside steps.",
        "From steps to halved, 0.0 % of the nonzero tokens change sign.",
        "From halved to begun, 0.0 % of the nonzero tokens change sign.",
    ]


def test_the_tokens_that_change_most_come_first() -> None:
    movers = audit(TABLE, TOKENS, {"steps": STEPS, "halved": HALVED}).token_movers
    assert movers is not None
    assert [(mover.rollout, mover.position, mover.token, mover.before, mover.after) for mover in movers] == [
        (0, 0, 5, 1.0, 0.25),
        (0, 1, 6, 1.0, 0.5),
    ]


def test_without_a_method_that_gives_tokens_credit_nothing_is_said_of_tokens() -> None:
    result = audit(TABLE, TOKENS, {"steps": STEPS})
    assert (result.token_methods, result.token_movers) == (None, None)
    assert result.as_json().keys() == audit_tables([TABLE], {"steps": STEPS}).as_json().keys()
    assert "token_methods" not in result.as_json()


def correlate(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Pearson's correlation, from its definition."""
    if len(set(first)) < 2 or len(set(second)) < 2:
        return None
    means = math.fsum(first) / len(first), math.fsum(second) / len(second)
    product = math.fsum((a - means[0]) * (b - means[1]) for a, b in zip(first, second, strict=True))
    squares = [math.fsum((a - mean) ** 2 for a in side) for side, mean in zip((first, second), means, strict=True)]
    return product / math.sqrt(squares[0] * squares[1])


@pytest.mark.parametrize("seed", range(12))
def test_every_number_is_that_of_a_plain_loop(seed: int) -> None:
    rng = random.Random(f"audit tokens {seed}")
    answers = random_answers(rng)
    add_segments(rng, answers)
    table, tokens = tables_of(answers)
    algorithms = {name: methods.build(name) for name in ("grpo", "gtpo", "d3s", "spo_chain", "after_vsrm")}
    credit: dict[str, list[tuple[float, bool]]] = {}
    for name, algorithm in algorithms.items():
        earned = algorithm.credit(table)
        keep = dict(zip(table.step_of_row.tolist(), algorithm.keep(table, earned).tolist(), strict=True))
        part = algorithm.token_credit
        given = part(algorithm.estimator_table(table), earned.by_step(), tokens) if part else None
        credit[name] = [
            (
                float(given.values[k] if given else earned.by_step().values[step]),
                keep[step] and bool(given.trains[k] if given else True),
            )
            for k, step in enumerate(tokens.row.tolist())
        ]
    for column in columns_of(audit(table, tokens, algorithms)):
        own = credit[column.name]
        trained = [value for value, trains in own if trains]
        assert (column.tokens, column.trained_tokens) == (len(own), len(trained))
        assert column.silent_tokens == sum(value == 0 for value in trained)
        assert column.largest == max(map(abs, trained), default=0.0)
        assert column.mean_size == pytest.approx(math.fsum(map(abs, trained)) / max(len(trained), 1))
        for other, correlation in column.correlation.items():
            both = [(a, b) for (a, x), (b, y) in zip(own, credit[other], strict=True) if x and y]
            assert column.both_signed[other] == sum(a != 0 and b != 0 for a, b in both)
            assert column.flips[other] == sum(a * b < 0 for a, b in both)
            expected = correlate([a for a, _ in both], [b for _, b in both])
            assert correlation == (None if expected is None else pytest.approx(expected, abs=1e-6))


# Refusals


def test_a_method_whose_columns_are_missing_is_refused_by_their_names() -> None:
    bare = TokenTable.from_rows(TABLE, [{}, {}])
    for name, tokens, missing in (
        ("spo_chain", TOKENS, "segment_ends, segment_values"),
        ("gtpo", TOKENS, "entropy"),
        ("d3s", bare, "response_ids, entropy"),
        ("dcpo", bare, "response_ids, logp_cold, logp_hot"),
    ):
        with pytest.raises(ConfigError) as raised:
            audit(TABLE, tokens, {"grpo": methods.grpo(), name: methods.build(name)})
        assert str(raised.value) == (
            f"method {name!r} needs {missing}, which the file does not have; leave the method out, or "
            "audit a recording that has them (docs/reference/rollouts.md)"
        )


def test_what_a_part_refuses_is_told_with_the_method() -> None:
    columns = {"segment_ends": [[3], [1]], "segment_values": [[], []]}
    table = StepTable.from_columns(
        task=["t", "t"], rollout=[0, 1], step=[0, 0], reward=[1.0, 0.0], tokens=[3, 1], **columns
    )
    algorithm = Algorithm(advantage=methods.rloo().advantage, token_credit=SegmentCredit())
    with pytest.raises(
        RecordError, match=r"^method 'mine': task 't', .* \(logp_behaviour\), but they were not recorded"
    ):
        audit(table, TOKENS, {"mine": algorithm})


# Files

ROWS = [
    row(
        task,
        rollout,
        0,
        "s",
        float(rollout == "a"),
        response_ids=[5, 6, 7] if rollout == "a" else [5, 8],
        entropy=[0.1, 0.2, 0.6] if rollout == "a" else [0.1, 0.3],
        logp_behaviour=[-0.5] * (3 if rollout == "a" else 2),
    )
    for task in ("t", "u", "v", "w")
    for rollout in ("a", "b")
]


def test_a_file_with_token_columns_is_compared_token_by_token(tmp_path: Path) -> None:
    file = write(tmp_path / "rollouts.jsonl", ROWS)
    data: dict[str, Any] = show_json("audit", file, "--method", "dr_grpo", "--method", "gtpo")
    step, token = data["token_methods"]
    assert (step["has_own_credit"], token["has_own_credit"]) == (False, True)
    # Token 5 begins good and bad answers: doubled in the good, spared in the bad. Entropy costs a tenth of its mean.
    good, bad = 0.5 - 0.1 * 0.3, -0.5 - 0.1 * 0.2
    assert token["mean_size"] == pytest.approx((4 * good + -bad) / 5)
    assert (token["tokens"], token["silent_tokens"]) == (20, 4)
    lines = words(invoke("audit", file, "--method", "dr_grpo", "--method", "gtpo"))
    assert any(line.startswith("Advantages of 20 sampled tokens under each method") for line in lines)
    assert "Tokens that change most from dr_grpo to gtpo" in lines


def test_a_parquet_file_gives_the_same(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    pyarrow = pytest.importorskip("pyarrow")
    asked = ("--method", "dr_grpo", "--method", "gtpo")
    expected = show_json("audit", write(tmp_path / "rollouts.jsonl", ROWS), *asked)
    path = tmp_path / "rollouts.parquet"
    note = {b"groupwise.rollouts": json.dumps({"format": "groupwise.rollouts", "version": 2, "meta": {}}).encode()}
    parquet.write_table(pyarrow.Table.from_pylist(ROWS).replace_schema_metadata(note), path)
    assert show_json("audit", path, *asked) == expected


def test_a_large_file_is_compared_in_parts_like_a_small_one(tmp_path: Path) -> None:
    file = open_rollouts(write(tmp_path / "rollouts.jsonl", ROWS))
    algorithms = {"dr_grpo": STEPS, "gtpo": methods.build("gtpo")}

    def audit_chunks(chunk_bytes: int) -> Audit:
        chunks = list(file.chunks(chunk_bytes=chunk_bytes, keeps_tokens=True))
        assert (len(chunks) > 1) == (chunk_bytes < 1000)
        rest = iter(chunks)
        return audit_tables(
            (chunk.table() for chunk in chunks),
            algorithms,
            read_tokens=lambda table: TokenTable.from_rows(table, next(rest).tokens),
        )

    parts, whole = audit_chunks(300).as_json(), audit_chunks(1 << 20).as_json()
    assert parts["token_movers"] == whole["token_movers"]
    assert round_floats(parts["token_methods"]) == round_floats(whole["token_methods"])


def round_floats(data: object) -> Any:
    """Plain data without the last digits, which hang on the order in which chunks are added up."""
    return json.loads(json.dumps(data), parse_float=lambda text: round(float(text), 9))


def test_chunks_hold_tokens_only_where_they_are_asked_for(tmp_path: Path) -> None:
    file = open_rollouts(write(tmp_path / "rollouts.jsonl", ROWS))
    assert [chunk.tokens for chunk in file.chunks()] == [[]]
    (chunk,) = file.chunks(keeps_tokens=True)
    assert chunk.tokens[0] == {
        "response_ids": [5, 6, 7],
        "logp_behaviour": [-0.5] * 3,
        "entropy": [0.1, 0.2, 0.6],
    }
