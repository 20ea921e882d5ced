"""A small transformer with a word-level tokenizer, for laptops and tests.

It is an ordinary Hugging Face model and tokenizer: save it with `save_pretrained`, load it with `AutoModelForCausalLM`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

from pydantic import Field, model_validator

from groupwise.parts.part import Part

if TYPE_CHECKING:
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

PAD, UNKNOWN, START, END = "<pad>", "<unk>", "<s>", "</s>"
EXTRA_WORDS = ("goal", ":", ">", "possible", ",", ".", "<", "/", "think", "action")
"""Words of prompts besides those of the environment."""
WORD = r"[a-z0-9]+|[^\sa-z0-9]"
"""A word is a sequence of letters and digits, or one other character; the text is lower-cased first."""
TAG = re.compile(r"</?[a-z]+>")
"""A tag among the words is one word: several words would be decoded with spaces inside the tag."""


class TinyModel(Part, slot="model"):
    """A small Llama: pre-norm attention with rotary positions, tied embeddings."""

    hidden: Annotated[int, Field(gt=0)] = 128
    """Width of the residual stream."""
    layers: Annotated[int, Field(gt=0)] = 4
    """Number of blocks."""
    heads: Annotated[int, Field(gt=0)] = 4
    """Attention heads."""
    expansion: Annotated[int, Field(gt=0)] = 3
    """Width of the feed-forward layers, in multiples of `hidden`."""
    context: Annotated[int, Field(gt=0)] = 2048
    """Longest sequence, in tokens."""

    @model_validator(mode="after")
    def _heads_fit(self) -> TinyModel:
        if self.hidden % (2 * self.heads):
            raise ValueError(
                f"hidden is {self.hidden}, but with {self.heads} heads it must be a multiple of {2 * self.heads}"
            )
        return self

    def open(self, *, words: tuple[str, ...], seed: int) -> tuple[LlamaForCausalLM, PreTrainedTokenizerFast]:
        tokenizer, _ = self.open_tokenizer(words=words)
        return self.build(tokenizer, seed=seed), tokenizer

    def open_tokenizer(self, *, words: tuple[str, ...]) -> tuple[PreTrainedTokenizerFast, int]:
        """The tokenizer of `open`, and the number of positions of the model; no model is made."""
        return make_word_tokenizer((*words, *EXTRA_WORDS)), self.context

    def build(self, tokenizer: PreTrainedTokenizerFast, *, seed: int) -> LlamaForCausalLM:
        """A model with random weights from the seed; the global random generator is not changed."""
        import torch
        from transformers import LlamaForCausalLM

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed % 2**63)
            return LlamaForCausalLM(self.make_config(tokenizer))

    def make_config(self, tokenizer: PreTrainedTokenizerFast) -> LlamaConfig:
        from transformers import LlamaConfig

        return LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=self.hidden,
            intermediate_size=self.expansion * self.hidden,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            num_key_value_heads=self.heads,
            max_position_embeddings=self.context,
            tie_word_embeddings=True,
            # 0.02 is for wide models; at this width, the first updates would have almost no signal.
            initializer_range=0.05,
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
        )


def make_word_tokenizer(words: Iterable[str]) -> PreTrainedTokenizerFast:
    """A tokenizer of whole words: one id per word, in alphabetical order after the four special tokens.

    Decoding puts one space between words, so text of lower-case words is restored exactly. A tag such as `<action>` is
    one word if it is among the given words.
    """
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    own = sorted(set(words) - {PAD, UNKNOWN, START, END})
    known = [PAD, UNKNOWN, START, END, *own]
    pattern = "|".join([*filter(TAG.fullmatch, own), WORD])
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(known)}, unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.Lowercase()
    # "isolated" keeps the matches; white space is removed first.
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split(Regex(pattern), behavior="isolated")]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=PAD, unk_token=UNKNOWN, bos_token=START, eos_token=END
    )
