"""Small byte-pair tokenizers with the chat templates of known models.

The merges are learned here from a few sentences, so that line breaks and words merge as they do in a large vocabulary:
a prompt that is encoded in pieces has other ids than the whole. The templates write a dialogue as those of the models
do; tools are left out. That of DeepSeek-R1-Distill is whole (MIT licence, February 2025).
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

SENTENCES = (
    "You are an agent in a text home. Your task is to put a clean mug in the desk.\n",
    "Your current observation is: You arrive at desk 1. On the desk 1, you see a mug 1.\n\n",
    "Your admissible actions of the current situation are: ['go to desk 1'\n 'take mug 1 from desk 1'].\n",
    "user\nassistant\nsystem\nYou are a helpful assistant.\n\nWhat is 12 + 30? Let me think.\n\n",
    "user\n\nYou\n\nassistant\n\n\nLet me think [INST] You are [/INST] 42\n\nuser\n\nYou\n\n\nassistant",
)
GPT_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|\s*[\r\n]+|\s+(?!\S)|\s+| ?[^\s\p{L}\p{N}]+[\r\n]*"
)

CHATML = (
    "{%- if messages[0]['role'] == 'system' %}{{- '<|im_start|>system\n' + messages[0]['content'] + '<|im_end|>\n' }}"
    "{%- else %}{{- '<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n' }}{%- endif %}"
    "{%- for message in messages %}{%- if message.role != 'system' %}"
    "{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}"
    "{%- endif %}{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"
)
"""Qwen2.5 and SmolLM2: a system message of the template's own, and white space stays."""
LLAMA_3 = (
    "{% for message in messages %}{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'"
    " + message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}"
    "{% endif %}{{ content }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)
"""Llama 3: white space around a message goes, and turns end with a token that is not the end of the sequence."""
MISTRAL = (
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}"
    "{{ '[INST] ' + message['content'] + ' [/INST]' }}{% elif message['role'] == 'assistant' %}"
    "{{ message['content'] + eos_token }}{% else %}{{ raise_exception('Only user and assistant roles!') }}{% endif %}"
    "{% endfor %}"
)
"""Mistral 7B: the marks around a message are no tokens, so a message merges with them."""
R1_DISTILL = Path(__file__).with_name("r1_distill.jinja").read_text(encoding="utf-8")
"""DeepSeek-R1-Distill-Qwen: a new answer begins with an opened thought, and past answers lose theirs."""
BAR = "\uff5c"
"""In the names of its tokens."""


@lru_cache
def make_tokenizer(name: str, sentences: tuple[str, ...] = SENTENCES, size: int = 600) -> PreTrainedTokenizerFast:
    """The tokenizer `chatml`, `llama_3`, `mistral`, `r1_distill`, or `plain` (no chat template)."""
    made = Tokenizer(models.BPE())
    if name == "mistral":  # words begin with a mark in place of a blank, also the first
        made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        made.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
        alphabet = [chr(code) for code in range(32, 127)] + ["\n", "▁"]
    else:
        split = pre_tokenizers.Split(Regex(GPT_WORDS), "isolated")
        made.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(False, use_regex=False)])
        made.decoder = decoders.ByteLevel()
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=size, min_frequency=1, initial_alphabet=alphabet, show_progress=False)
    made.train_from_iterator(sentences, trainer)
    begin, end, template, special, words = {
        "chatml": (None, "<|im_end|>", CHATML, ["<|im_start|>"], []),
        "llama_3": (
            "<|begin_of_text|>",
            "<|end_of_text|>",
            LLAMA_3,
            ["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
            [],
        ),
        "mistral": ("<s>", "</s>", MISTRAL, [], []),
        "r1_distill": (
            f"<{BAR}begin▁of▁sentence{BAR}>",
            f"<{BAR}end▁of▁sentence{BAR}>",
            R1_DISTILL,
            [],
            [f"<{BAR}User{BAR}>", f"<{BAR}Assistant{BAR}>", "<think>", "</think>"],
        ),
        "plain": ("<s>", "</s>", None, [], []),
    }[name]
    made.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    made.add_tokens([AddedToken(token, normalized=False) for token in words])
    fast = PreTrainedTokenizerFast(tokenizer_object=made, bos_token=begin, eos_token=end)
    fast.chat_template = template
    return fast
