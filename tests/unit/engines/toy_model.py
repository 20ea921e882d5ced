"""A model of a few numbers that a scripted server speaks for: fast, exact, and with something to keep of prefixes."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from groupwise.data.samples import PromptAndResponse

VOCABULARY = 24
BLOCK = 8
"""Tokens of a block of kept prefixes."""


def make_weights(seed: int) -> dict[str, np.ndarray]:
    """Weights of a model, by name."""
    draw = np.random.default_rng(seed)
    return {
        "table": draw.normal(size=(VOCABULARY, VOCABULARY)).astype(np.float32),
        "value": (0.3 * draw.normal(size=VOCABULARY)).astype(np.float32),
        "tilt": draw.normal(size=VOCABULARY).astype(np.float32),
    }


def make_source() -> Any:
    """What an engine is opened with: as much of it as a client looks at."""
    config = SimpleNamespace(vocab_size=VOCABULARY)
    return SimpleNamespace(model=SimpleNamespace(config=SimpleNamespace(get_text_config=lambda: config)))


def write_weights(folder: Path, seed: int) -> Path:
    """A file of weights, as a weight sync names it."""
    path = folder / f"weights-{seed}.safetensors"
    save_file(make_weights(seed), path)
    return path


@dataclass
class ToyModel:
    """The next token depends on the last one, and on the sum of a value of every token before.

    Sums over blocks of a prompt are kept, as keys and values are: whoever changes the weights must forget them.
    """

    weights: dict[str, np.ndarray]
    kept: dict[tuple[int, ...], float] = field(default_factory=dict)

    def load(self, path: str) -> None:
        self.weights = load_file(path)

    def predict(self, context: Sequence[int], temperature: float = 1.0, *, keeps: bool = True) -> np.ndarray:
        """Log-probs of the next token."""
        past, start = 0.0, 0
        for end in range(BLOCK, len(context), BLOCK):
            block = tuple(context[:end])
            if keeps and block in self.kept:
                past = self.kept[block]
            else:
                past += float(self.weights["value"][list(context[start:end])].sum())
                if keeps:
                    self.kept[block] = past
            start = end
        past += float(self.weights["value"][list(context[start:])].sum())
        logits = self.weights["table"][context[-1]].astype(np.float64) + past * self.weights["tilt"]
        scaled = logits / (temperature or 1.0)
        result: np.ndarray = scaled - np.log(np.exp(scaled - scaled.max()).sum()) - scaled.max()
        return result

    def sample(
        self,
        prompt: Sequence[int],
        seed: int,
        max_tokens: int,
        temperature: float,
        stops: Sequence[int],
        *,
        top_p: float = 1.0,
        top_k: int = 0,
    ) -> tuple[list[int], list[float], list[float]]:
        """Tokens, their log-probs and entropies; each draw follows from the seed and the place alone."""
        ids, logps, entropies = list[int](), list[float](), list[float]()
        while len(ids) < max_tokens and not (ids and ids[-1] in stops):
            logp = keep_likeliest(self.predict([*prompt, *ids], temperature), top_p=top_p, top_k=top_k)
            chance = int.from_bytes(hashlib.blake2b(f"{seed} {len(ids)}".encode(), digest_size=6).digest()) / 2**48
            drawn = int(np.searchsorted(np.exp(logp).cumsum(), chance * np.exp(logp).sum()))
            ids.append(int(logp.argmax()) if temperature == 0 else min(drawn, VOCABULARY - 1))
            logps.append(float(logp[ids[-1]]))
            entropies.append(float(-sum(math.exp(each) * each for each in logp.tolist() if each > -math.inf)))
        return ids, logps, entropies

    def score(self, prompt: Sequence[int], response: Sequence[int], temperature: float = 1.0) -> list[float]:
        """Log-probs of a response, without anything that was kept."""
        return [
            float(self.predict([*prompt, *response[:place]], temperature, keeps=False)[token])
            for place, token in enumerate(response)
        ]

    def logps(self, pairs: Sequence[PromptAndResponse]) -> list[tuple[float, ...]]:
        """What a learner with these weights says: what the weight check compares."""
        return [tuple(self.score(prompt, response)) for prompt, response in pairs]


def keep_likeliest(logp: np.ndarray, *, top_p: float = 1.0, top_k: int = 0) -> np.ndarray:
    """The log-probs of what is left, one token after the other: the `top_k` first, then until `top_p` is reached."""
    falling = sorted(range(len(logp)), key=lambda token: (-logp[token], token))[: top_k or len(logp)]
    chances = {token: math.exp(logp[token]) for token in falling}
    kept, total = list[int](), 0.0
    for token in falling:
        if total < top_p or top_p == 1:
            kept.append(token)
        total += chances[token] / math.fsum(chances.values())
    left = np.full(len(logp), -np.inf)
    whole = math.log(math.fsum(chances[token] for token in kept))
    for token in kept:
        left[token] = logp[token] - whole
    return left
