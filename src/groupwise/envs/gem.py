"""GEM's language games."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from pydantic import field_validator

from groupwise.envs.kit.package_games import BEGINNING, GameReply, PackageGames, digest_instance, summarise_error
from groupwise.envs.kit.packages import import_package, refuse_eval
from groupwise.system.errors import ConfigError, nearest

ENV = "gem"
PACKAGE = "gem"
GAMES = "game:"
"""Prefix of the names of games; GEM's other environments are questions from files that it downloads."""
COUNTED = re.compile(r"^At turn \d+, ")
"""Prefix of a message; the number would make every visit of a situation a new one."""


class Gem(PackageGames, slot="env"):
    """A language game of GEM (Liu et al. 2025, arXiv:2510.01051), such as "game:Minesweeper-v0-easy".

    The goal is the game's instructions. The text is the game's reply to the last action, and the board. Rewards are the
    game's: 1 for a solved game, a part of it if the turns run out, slightly below 0 for an invalid action. A fork is a
    copy.

    Choices: the `state_key` is the board; in games without a board, all replies so far, in any order and without turn
    numbers. An action is put into the box that games look for, unless it has one. GEM does not report invalid actions.
    So an action is invalid if its reward is negative, or if it has no reward and does not change the board. The game's
    own turn limit is a rule of the game, so it terminates the rollout. An instance's content decides its split. There
    is no expert.
    """

    env = ENV
    distribution = "gem-llm"
    id: str
    """Name in GEM's registry, beginning with "game:"."""

    @field_validator("id")
    @classmethod
    def _is_a_game(cls, id: str) -> str:
        if not id.startswith(GAMES):
            raise ValueError(f"{id!r} is not a game; names of GEM's games begin with {GAMES}")
        return id

    def begin(self, id: str, kwargs: Mapping[str, Any], seed: int) -> GemGame:
        return GemGame(_make_game(id, kwargs), seed, self)

    def find_files(self) -> list[Path]:
        return [_find_file(_make_game(self.id, self.kwargs))]


class GemGame:
    """A game of GEM, from its beginning."""

    def __init__(self, inner: Any, seed: int, part: Gem) -> None:
        self.inner = inner
        self._solved_at = part.success_reward
        self._said: frozenset[str] = frozenset()
        rules, more = self.inner.reset(seed=seed)
        self.goal = str(rules).strip()
        self._board = _read_board(more)
        self.first = self._make_reply("", more)
        # Not the instructions: their examples are drawn too, and would make two games of one.
        state = {name: value for name, value in vars(self.inner).items() if not name.startswith("_np_random")}
        self.instance = digest_instance(state, seed if part.seeds_differ else None)

    def play(self, action: str) -> GameReply:
        boxed = action if "\\boxed" in action else f"\\boxed{{{action}}}"
        message, earned, terminated, truncated, more = self.inner.step(boxed)
        reward, before, self._board = float(earned), self._board, _read_board(more)
        ended = bool(terminated or truncated)
        had_effect = ended or reward > 0 or not before or self._board != before
        success = reward >= self._solved_at if ended else None
        return self._make_reply(
            str(message).strip(), more, reward=reward, accepted=reward >= 0 and had_effect, success=success
        )

    def _make_reply(self, message: str, more: Mapping[str, Any], *, accepted: bool = True, **rest: Any) -> GameReply:
        if message and accepted:
            self._said |= {COUNTED.sub("", message)}
        text = "\n".join(part for part in (message, str(more.get("suffix") or "").strip("\n")) if part)
        key = self._board or "\n".join(sorted(self._said))
        return GameReply(text=text or BEGINNING, key=key, accepted=accepted, **rest)


def _read_board(more: Mapping[str, Any]) -> str:
    board = str(more.get("suffix") or "").strip("\n")
    return board if "\n" in board else ""


def _make_game(id: str, kwargs: Mapping[str, Any]) -> Any:
    registry = import_package(ENV, f"{PACKAGE}.envs.registration", then="pip install --no-deps gem-llm").ENV_REGISTRY
    if id not in registry:
        known = [name for name in registry if name.startswith(GAMES)]
        raise ConfigError(f"gem: there is no game {id!r}; {nearest(id, known)}")
    try:
        game = import_module(PACKAGE).make(id, **kwargs)
    except Exception as error:  # an option that it does not have, words that it would download
        raise ConfigError(f"gem {id!r}: it cannot be created ({summarise_error(error)}); check env.kwargs") from None
    refuse_eval(ENV, id, _find_file(game))
    return game


def _find_file(game: Any) -> Path:
    return Path(str(import_module(type(game).__module__).__file__))
