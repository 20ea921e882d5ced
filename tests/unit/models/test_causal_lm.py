"""Models that packed tokens would not reach as they should are refused, with the reason."""

from __future__ import annotations

import pytest
import torch
from torch import nn

pytest.importorskip("transformers", reason="the models are Hugging Face models")

from groupwise.models.causal_lm import CausalLM
from groupwise.models.forward import check_packs, compute_token_logps
from groupwise.models.pack import Pack, pack, pad_rows
from groupwise.system.errors import ConfigError
from tests.equivalence.models import build
from tests.unit.models.samples import sample

SAMPLES = [sample((1, 2, 3, 4, 5), (6, 7)), sample((1, 2, 3, 4, 5), (8,))]


def _refusal(model: nn.Module) -> str:
    (packed,) = pack(SAMPLES, token_budget=99)
    with pytest.raises(ConfigError) as raised:
        _check_and_compute(model, packed)
    return str(raised.value)


def _check_and_compute(model: nn.Module, packed: Pack) -> None:
    check_packs(model, longest=packed.longest)
    compute_token_logps(model, packed)


@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma3", "gpt_neox"])
def test_body_and_head_make_up_the_model(family: str) -> None:
    model = build(family)
    halves = CausalLM.of(model)
    tokens = torch.tensor([[1, 2, 3]])
    hidden = halves.run_body(
        input_ids=tokens, attention_mask=torch.ones_like(tokens), position_ids=torch.arange(3)[None]
    )
    with torch.no_grad():
        torch.testing.assert_close(halves.head.compute_logits(hidden[0], 0, 29), model(input_ids=tokens).logits[0])


def test_a_window_shorter_than_the_longest_path_is_refused() -> None:
    message = _refusal(build("gemma3", sliding_window=5))
    assert message == (
        "Gemma3ForCausalLM has layers with an attention window of 5 tokens, and the longest sequence has 6; "
        "use padded rows, one per sample, or shorten the sequences"
    )


def test_a_window_as_long_as_the_longest_path_is_harmless_and_padded_rows_need_none() -> None:
    (packed,) = pack(SAMPLES, token_budget=99)
    (rows,) = pad_rows(SAMPLES)
    (short,) = pad_rows([sample((1, 2, 3), (4,))])
    wide, narrow = build("gemma3", sliding_window=6), build("gemma3", sliding_window=3)
    torch.testing.assert_close(compute_token_logps(wide, packed)[0], compute_token_logps(wide, rows)[0])
    with torch.no_grad():
        logits = narrow(input_ids=torch.tensor([[1, 2, 3, 4]])).logits[0, 2]
    torch.testing.assert_close(compute_token_logps(narrow, short)[0], logits.log_softmax(-1)[4:5])


def test_an_unused_window_is_no_window() -> None:
    (packed,) = pack(SAMPLES, token_budget=99)
    (rows,) = pad_rows(SAMPLES)
    model, plain = build("qwen2", use_sliding_window=False, sliding_window=2), build("qwen2")
    plain.load_state_dict(model.state_dict())
    torch.testing.assert_close(compute_token_logps(model, packed)[0], compute_token_logps(plain, rows)[0])


def test_layers_without_a_mask_are_refused() -> None:
    model = build("qwen3")
    CausalLM.of(model).config.layer_types = ["full_attention", "linear_attention"]
    assert _refusal(model) == (
        "Qwen3ForCausalLM has layers of kind linear_attention, which do not follow an attention mask; "
        "use padded rows, one per sample"
    )


def test_a_body_without_positions_is_refused() -> None:
    model = build("llama")
    model.model.forward = lambda input_ids, attention_mask, use_cache, return_dict: None  # type: ignore[union-attr]
    assert _refusal(model) == (
        "LlamaForCausalLM takes no position_ids, so its tokens cannot be packed; use padded rows, one per sample"
    )


def test_sequences_beyond_the_context_are_refused_in_every_layout() -> None:
    model = build("llama", max_position_embeddings=5)
    message = (
        "a sequence of {} tokens is longer than the 5 positions of LlamaForCausalLM; "
        "shorten the prompts or load a model with a longer context"
    )
    assert _refusal(model) == message.format(6)
    (rows,) = pad_rows(SAMPLES)
    with pytest.raises(ConfigError) as raised:
        compute_token_logps(model, rows)
    assert str(raised.value) == message.format(7)


def test_tokens_of_another_tokenizer_are_refused() -> None:
    model = build("llama", vocab_size=8)
    assert _refusal(model) == (
        "token id 8 is outside the vocabulary of 8 of LlamaForCausalLM; train on samples of the model's own tokenizer"
    )


def test_a_model_without_a_head_is_refused() -> None:
    assert _refusal(build("llama").model) == (  # type: ignore[arg-type, union-attr]
        "LlamaModel is not a causal language model with a body and an output layer; load one"
    )


def test_an_adapted_head_is_refused() -> None:
    peft = pytest.importorskip("peft", reason="LoRA adapters come from peft")
    model = peft.get_peft_model(build("llama"), peft.LoraConfig(r=2, target_modules=["q_proj", "lm_head"]))
    assert _refusal(model) == (
        "the output layer of LlamaForCausalLM is a peft.tuners.lora.layer.Linear, not a plain linear layer; "
        "leave it out of LoRA's target modules and of quantisation"
    )


def test_virtual_tokens_are_refused() -> None:
    peft = pytest.importorskip("peft", reason="adapters come from peft")
    config = peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=2)
    assert _refusal(peft.get_peft_model(build("llama"), config)) == (
        "the adapter puts virtual tokens before the prompt, which shared prefixes do not support; use LoRA"
    )


def test_a_model_that_does_something_of_its_own_to_the_logits_is_found_out() -> None:
    class Doubled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = build("llama")
            self.config, self.get_decoder = self.inner.config, self.inner.get_decoder
            self.get_output_embeddings = self.inner.get_output_embeddings

        def forward(self, **inputs: torch.Tensor) -> object:
            output = self.inner(**inputs)
            output.logits = 2 * output.logits
            return output

    message = _refusal(Doubled())
    assert message.startswith("Doubled does not run packed: log-probs of 7 tokens differ from its own forward pass by ")
    assert message.endswith("; use padded rows, one per sample")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_model_that_ignores_the_mask_is_found_out(dtype: torch.dtype) -> None:
    wide = {"hidden_size": 256, "intermediate_size": 512, "head_dim": 64, "initializer_range": 0.08}
    model = build("llama", **wide).to(dtype)  # differences drown in rounding where a model has little to say
    check_packs(model)
    model = build("llama", **wide).to(dtype)
    body = model.model
    ordinary = body.forward

    def forward(input_ids: torch.Tensor, attention_mask: torch.Tensor, position_ids: torch.Tensor, **rest: object):
        return ordinary(input_ids=input_ids, attention_mask=None, position_ids=position_ids, **rest)

    body.forward = forward
    assert "does not run packed" in _refusal(model)


def test_the_check_runs_once_and_restores_every_mode() -> None:
    model = build("llama")
    model.train()
    model.lm_head.eval()  # type: ignore[union-attr]
    calls = []
    model.register_forward_pre_hook(lambda *_: calls.append(1))
    check_packs(model)
    checked = len(calls)
    check_packs(model)
    assert (checked, len(calls)) == (4, 4)
    assert model.training
    assert not model.lm_head.training  # type: ignore[union-attr]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        check_packs(model)  # another precision is another question, and is looked at in that of the weights too
    assert len(calls) == 12


def test_flash_attention_is_refused() -> None:
    model = build("llama")
    model.config._attn_implementation_internal = "flash_attention_2"  # type: ignore[union-attr]
    assert "'flash_attention_2' attention" in _refusal(model)
