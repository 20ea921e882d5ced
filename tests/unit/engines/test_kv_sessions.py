"""Sessions: whatever is kept, dropped or moved about, answers and their log-probs are those of a fresh look."""

from __future__ import annotations

from random import Random

import pytest

torch = pytest.importorskip("torch")

from groupwise.engines import transformers_engine as kv_sessions
from groupwise.engines.engine import Request
from groupwise.engines.transformers_engine import TransformersEngine
from groupwise.models.tiny import TinyModel, make_word_tokenizer

END = 3


@pytest.fixture(scope="module")
def model():  # type: ignore[no-untyped-def]
    return TinyModel(hidden=32, layers=2).build(make_word_tokenizer(f"w{i}" for i in range(40)), seed=0).eval()


def make_next_prompt(prompt: tuple[int, ...], response: tuple[int, ...], draws: Random) -> tuple[int, ...]:
    """The next prompt of a rollout: it goes on, or forgets its beginning, or changes its mind halfway."""
    observation = tuple(draws.randrange(4, 40) for _ in range(draws.randrange(1, 12)))
    whole = (*prompt, *response, *observation)
    kind = draws.random()
    if kind < 0.7:
        return whole
    return whole[len(whole) // 3 :] if kind < 0.85 else (*prompt[: len(prompt) // 2], *observation)


@pytest.mark.parametrize(
    ("dense", "batch_tokens", "session_tokens"),
    [(0.0, 32768, 10**6), (1.1, 32768, 10**6), (0.6, 300, 10**6), (1.1, 300, 10**6), (0.6, 300, 150)],
    ids=["gaps kept", "gaps closed", "many batches", "many batches, gaps closed", "little is kept"],
)
def test_ten_steps_of_rollouts_that_come_and_go(  # type: ignore[no-untyped-def]
    model, monkeypatch: pytest.MonkeyPatch, dense: float, batch_tokens: int, session_tokens: int
) -> None:
    monkeypatch.setattr(kv_sessions, "DENSE", dense)
    draws = Random(7)
    engine = TransformersEngine(model, batch_tokens=batch_tokens, session_tokens=session_tokens)
    plain = TransformersEngine(model, session_tokens=0)
    prompts = {f"rollout {i}": tuple(draws.randrange(4, 40) for _ in range(3 + i % 5)) for i in range(12)}
    for step in range(10):
        asked = [
            Request(prompt_ids=prompt, seed=97 * step + i, max_tokens=8, stop_ids=(END, 5, 9), session=name)
            for i, (name, prompt) in enumerate(prompts.items())
        ]
        answers = engine.generate(asked)
        scores = plain.score([(a.prompt_ids, g.response_ids) for a, g in zip(asked, answers, strict=True)])
        for given, score in zip(answers, scores, strict=True):
            assert given.logp == pytest.approx(score, abs=1e-5)
        assert [g.response_ids for g in answers] == [g.response_ids for g in plain.generate(asked)]
        prompts = {
            name: make_next_prompt(prompt, given.response_ids, draws)
            for (name, prompt), given in zip(prompts.items(), answers, strict=True)
            if draws.random() < 0.9
        }


def test_sessions_that_are_over_are_forgotten_and_the_rest_is_reused(model) -> None:  # type: ignore[no-untyped-def]
    engine = TransformersEngine(model)
    asked = [Request(prompt_ids=(4, 5, 6 + i), seed=i, max_tokens=4, session=str(i)) for i in range(4)]
    answers = engine.generate(asked)
    assert sorted(engine._sessions._kept) == ["0", "1", "2", "3"]
    following = [
        Request(prompt_ids=(*a.prompt_ids, *g.response_ids, 7), seed=9, max_tokens=4, session=a.session)
        for a, g in zip(asked[:2], answers[:2], strict=True)
    ]
    past = engine._sessions.replay(following, engine.device)
    assert past.lengths == [len(a.prompt_ids) - 2 for a in following], "all but the last sampled token and the new one"
    engine.generate(following)
    assert sorted(engine._sessions._kept) == ["0", "1"]
