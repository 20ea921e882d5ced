"""Where a limit cut rollouts off, what is expected after them is the oracle's, on random tables."""

from __future__ import annotations

import random

import pytest

from groupwise import StepTable, methods
from tests.oracles.rows import Row, by_rollout, steps_of
from tests.oracles.temporal import gagpo, hgae, shrunk_hgae
from tests.strategies import MODERATE, columns_of, random_rows

ORACLES = {"gagpo": gagpo, "hgae": hgae, "shrunk_hgae": shrunk_hgae}


def cut_some_off(rng: random.Random, rows: list[Row]) -> list[Row]:
    """Every other rollout ends at a limit, as its last row says."""
    ends = {
        path[-1].positions[-1]: rng.choice(("truncated", "terminated")) for path in by_rollout(steps_of(rows)).values()
    }
    return [row | {"stop": ends.get(position)} for position, row in enumerate(rows)]


@pytest.mark.few(6)
@pytest.mark.parametrize("method", sorted(ORACLES))
@pytest.mark.parametrize("lam", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("truncated", ["zero", "value"])
def test_what_follows_a_limit_is_nothing_or_the_last_value_again(method: str, lam: float, truncated: str) -> None:
    rng, has_differed = random.Random(f"cut {method}"), False
    for _ in range(150):
        rows = cut_some_off(rng, random_rows(rng, regimes=MODERATE, max_rows=30))
        hyper = {"lam": lam, "gamma": rng.choice((0.0, 0.5, 0.95)), "scale_by": "none", "truncated": truncated}
        table = StepTable.from_columns(**columns_of(rows))
        credit = methods.build(method, **hyper).advantage(table)
        expected, compared = ORACLES[method](rows, **hyper)
        assert credit.values.tolist() == pytest.approx(expected, abs=1e-9)
        assert credit.compared.tolist() == compared
        plain = methods.build(method, **hyper | {"truncated": "zero"}).advantage(table)
        has_differed |= bool((plain.values != credit.values).any())
    assert has_differed == (truncated == "value")
