"""What engines that mean the same must agree on, and how a session goes on."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from groupwise.engines.engine import Generation, Request


def assert_same(answers: Sequence[Generation], expected: Sequence[Generation]) -> None:
    assert [answer.response_ids for answer in answers] == [answer.response_ids for answer in expected]
    assert [answer.stopped for answer in answers] == [answer.stopped for answer in expected]
    for answer, other in zip(answers, expected, strict=True):
        assert answer.logp == pytest.approx(other.logp, abs=1e-5)
        assert answer.entropy == pytest.approx(other.entropy, abs=1e-5)


def ask_next(asked: Sequence[Request], said: Sequence[Generation]) -> list[Request]:
    """The next step of each session: the prompt goes on where the last one ended."""
    return [
        Request(prompt_ids=(*a.prompt_ids, *g.response_ids, 7, 8), seed=a.seed + 1, max_tokens=9, session=a.session)
        for a, g in zip(asked, said, strict=True)
    ]
