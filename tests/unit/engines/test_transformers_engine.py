"""The transformers engine: what it reports is what it sampled from, and nothing beside a request changes its answer."""

from __future__ import annotations

import random

import pytest

torch = pytest.importorskip("torch")
from transformers import LlamaConfig, LlamaForCausalLM

from groupwise.engines.engine import Request
from groupwise.engines.transformers_engine import TransformersEngine
from groupwise.system.errors import EngineFault

VOCABULARY = 120
STOPS = (2, 5, 9, 20)


@pytest.fixture(scope="module")
def model() -> LlamaForCausalLM:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=256,
        )
        return LlamaForCausalLM(config)


def requests(num: int = 24, *, temperature: float = 1.0, session: bool = False) -> list[Request]:
    draw = random.Random(1)
    prompts = [tuple(draw.randrange(3, VOCABULARY) for _ in range(draw.randrange(2, 30))) for _ in range(7)]
    return [
        Request(
            prompt_ids=prompts[i % len(prompts)],
            seed=1000 + i,
            max_tokens=1 + i % 9,
            temperature=temperature,
            stop_ids=STOPS,
            session=f"rollout {i}" if session else None,
        )
        for i in range(num)
    ]


@pytest.mark.parametrize("temperature", [0.3, 0.7, 1.0, 1.7])
def test_sampled_log_probs_are_those_of_a_second_look(model: LlamaForCausalLM, temperature: float) -> None:
    engine = TransformersEngine(model)
    asked = requests(temperature=temperature)
    answers = engine.generate(asked)
    pairs = [(a.prompt_ids, g.response_ids) for a, g in zip(asked, answers, strict=True)]
    for answer, scored in zip(answers, engine.score(pairs, temperature=temperature), strict=True):
        assert answer.logp == pytest.approx(scored, abs=1e-5)


def test_entropies_are_those_of_the_sampling_distribution(model: LlamaForCausalLM) -> None:
    [asked] = requests(1, temperature=0.5)
    [answer] = TransformersEngine(model).generate([asked])
    logits = model(torch.tensor([asked.prompt_ids])).logits[0, -1].detach().double() / 0.5
    p = logits.softmax(-1)
    assert answer.entropy[0] == pytest.approx(float(-(p * p.log()).sum()), abs=1e-5)


def test_an_answer_does_not_depend_on_what_is_asked_beside_it(model: LlamaForCausalLM) -> None:
    asked = requests()
    together = TransformersEngine(model).generate(asked)
    small = TransformersEngine(model, batch_tokens=64).generate(asked[::-1])[::-1]
    alone = [TransformersEngine(model).generate([request])[0] for request in asked]
    assert [a.response_ids for a in together] == [a.response_ids for a in small] == [a.response_ids for a in alone]


def test_another_seed_gives_another_answer_and_the_same_seed_the_same(model: LlamaForCausalLM) -> None:
    asked = [Request(prompt_ids=(3, 4, 5), seed=seed, max_tokens=8) for seed in (1, 1, 2, 3)]
    first, same, *others = (answer.response_ids for answer in TransformersEngine(model).generate(asked))
    assert first == same
    assert all(other != first for other in others)


def test_a_stop_token_ends_the_response_and_belongs_to_it(model: LlamaForCausalLM) -> None:
    for asked, answer in zip(requests(), TransformersEngine(model).generate(requests()), strict=True):
        assert len(answer.response_ids) == len(answer.logp) == len(answer.entropy) <= asked.max_tokens
        assert not set(answer.response_ids[:-1]) & set(STOPS)
        assert answer.stopped == (answer.response_ids[-1] in STOPS)
        assert answer.stopped or len(answer.response_ids) == asked.max_tokens


def test_temperature_zero_takes_the_likeliest_token(model: LlamaForCausalLM) -> None:
    [answer] = TransformersEngine(model).generate([Request(prompt_ids=(7, 8), seed=5, max_tokens=1, temperature=0.0)])
    assert answer.response_ids == (int(model(torch.tensor([[7, 8]])).logits[0, -1].argmax()),)


def test_sampling_follows_the_distribution(model: LlamaForCausalLM) -> None:
    asked = [Request(prompt_ids=(7, 8, 9), seed=seed, max_tokens=1) for seed in range(4000)]
    answers = TransformersEngine(model).generate(asked)
    p = model(torch.tensor([[7, 8, 9]])).logits[0, -1].detach().double().softmax(-1)
    counts = torch.bincount(torch.tensor([a.response_ids[0] for a in answers]), minlength=VOCABULARY)
    chi_squared = float(((counts - 4000 * p) ** 2 / (4000 * p)).sum())
    assert chi_squared < 119 + 4 * (2 * 119) ** 0.5  # mean and four deviations of chi-squared with 119 degrees


def test_what_a_session_keeps_changes_no_answer(model: LlamaForCausalLM) -> None:
    with_sessions, without = TransformersEngine(model), TransformersEngine(model, session_tokens=0)
    first = requests(session=True)
    answers = with_sessions.generate(first)
    assert [a.response_ids for a in without.generate(first)] == [a.response_ids for a in answers]
    following = [
        Request(prompt_ids=(*a.prompt_ids, *g.response_ids, 7, 8), seed=a.seed + 1, max_tokens=6, session=a.session)
        for a, g in zip(first, answers, strict=True)
    ]
    for kept, plain in zip(with_sessions.generate(following), without.generate(following), strict=True):
        assert kept.response_ids == plain.response_ids
        assert kept.logp == pytest.approx(plain.logp, abs=1e-5)


def test_loading_changes_the_version_the_answers_and_forgets_sessions(model: LlamaForCausalLM) -> None:
    import copy

    engine = TransformersEngine(copy.deepcopy(model))
    before = engine.generate(requests(session=True))
    weights = {name: value + 0.05 * torch.sin(1000 * value) for name, value in model.named_parameters()}
    engine.load(weights, version=3)
    after = engine.generate(requests(session=True))
    assert {span for a in before for span in a.versions} == {(0, len(a.response_ids)) for a in before}
    assert {span for a in after for span in a.versions} == {(3, len(a.response_ids)) for a in after}
    moved = copy.deepcopy(model)
    moved.load_state_dict({**moved.state_dict(), **weights})
    assert [a.logp for a in TransformersEngine(moved).generate(requests())] == [a.logp for a in after]


def test_weights_of_another_model_are_refused(model: LlamaForCausalLM) -> None:
    with pytest.raises(EngineFault) as caught:
        TransformersEngine(model).load({"no.such.weight": torch.zeros(1)}, version=1)
    assert str(caught.value) == ("the engine's model has no parameter 'no.such.weight'; sync weights of the same model")


def test_an_empty_prompt_is_refused(model: LlamaForCausalLM) -> None:
    with pytest.raises(EngineFault) as caught:
        TransformersEngine(model).generate([Request(prompt_ids=(), seed=0, max_tokens=1)])
    assert str(caught.value) == "a request has an empty prompt; begin prompts with a start token"
