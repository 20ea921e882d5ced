"""textarena's games for one player."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from groupwise.envs.kit.package_games import BEGINNING, GameReply, PackageGames, digest_instance, summarise_error
from groupwise.envs.kit.packages import import_package, refuse_eval
from groupwise.system.errors import ConfigError, nearest

ENV = "textarena"
PACKAGE = "textarena"
REFUSED = "textarena {id!r}: it does not start with one player ({reason}); choose a game for one player"


class Textarena(PackageGames, slot="env"):
    """A game of textarena (Guertler et al. 2025, arXiv:2504.11442) for one player, such as "FrozenLake-v0".

    The goal is the game's own prompt. The text is the game's messages since the last action, and the board. The reward
    comes at the end: 1 for a solved game, often a part of it otherwise. A fork is a copy.

    Choices: the `state_key` is the board; in games without a board, the actions and their replies, in any order. An
    action is put into the brackets that games look for, unless it has some. Two invalid actions in a row end most
    games; `allowed_errors` sets another number. The game's own turn limit is a rule of the game, so it terminates the
    rollout. An instance's content decides its split. So a game with few instances has small task sets, and a game with
    one instance has none. There is no expert.
    """

    env = distribution = ENV
    id: str
    """Name in textarena's registry, without the ending of a wrapper."""
    allowed_errors: Annotated[int, Field(ge=0)] | None = None
    """Invalid actions in a row that do not end the game; None = the game's own number, usually 1."""

    def begin(self, id: str, kwargs: Mapping[str, Any], seed: int) -> TextarenaGame:
        return TextarenaGame(id, kwargs, seed, self)

    def find_files(self) -> list[Path]:
        """The files of the game, and those of the package that speak of every game."""
        own = _find_folder(type(_make_game(self.id, self.kwargs)).__module__)
        package = _find_folder(PACKAGE)
        english = [file for file in (own / "locales" / "en.json", package / "locales" / "en.json") if file.exists()]
        return [own, package / "state.py", package / "core.py", *english]


class TextarenaGame:
    """A game of textarena, from its beginning."""

    def __init__(self, id: str, kwargs: Mapping[str, Any], seed: int, part: Textarena) -> None:
        self.inner: Any = _make_game(id, kwargs)
        self._solved_at = part.success_reward
        self._said: frozenset[str] = frozenset()
        self._board = self.goal = ""
        try:
            self.inner.reset(num_players=1, seed=seed)
        except Exception as error:  # a game says in its own way that it is for two, or that words are missing
            raise ConfigError(REFUSED.format(id=id, reason=summarise_error(error))) from None
        if type(self.inner.state).__name__ != "SinglePlayerState":  # some begin alone, and wait for the others
            raise ConfigError(REFUSED.format(id=id, reason=f"it keeps a {type(self.inner.state).__name__}"))
        if part.allowed_errors is not None:
            self.inner.state.error_allowance = part.allowed_errors
        message = self._read()
        self.first = self._make_reply(message or ("" if self._board else BEGINNING))
        seed_if_it_counts = seed if part.seeds_differ else None
        self.instance = digest_instance(self.inner.state.game_state, self.goal, self._board, seed_if_it_counts)

    def play(self, action: str) -> GameReply:
        state = self.inner.state
        errors = state.error_count
        ended, _ = self.inner.step(action if "[" in action else f"[{action}]")
        accepted = state.error_count <= errors and not state.game_info[0].get("invalid_move")
        message = self._read()
        if accepted:
            self._said |= {f"{action}: {message}"}
        if not ended:
            return self._make_reply(message, accepted=accepted)
        rewards, endings = self.inner.close()
        reward, reason = float(rewards[0]), str(endings[0].get("reason") or "")
        text = "\n".join(part for part in (message, reason) if part)
        return self._make_reply(text, accepted=accepted, reward=reward, success=reward >= self._solved_at)

    def _read(self) -> str:
        """The new messages of the game; the prompt becomes the goal, the board is stored."""
        messages = []
        for _, text, kind in self.inner.get_observation()[1]:
            name = getattr(kind, "name", "")  # a few games say something else
            if name == "PROMPT":
                self.goal = str(text).strip()
            elif name == "GAME_BOARD":
                self._board = str(text).strip("\n")
            elif name != "PLAYER_ACTION":
                messages.append(str(text).strip())
        return "\n".join(messages)

    def _make_reply(self, message: str, **rest: Any) -> GameReply:
        text = "\n".join(part for part in (message, self._board) if part)
        return GameReply(text=text, key=self._board or "\n".join(sorted(self._said)), **rest)


def _make_game(id: str, kwargs: Mapping[str, Any]) -> Any:
    """A game without the wrappers that join all earlier messages into one text."""
    textarena = import_package(ENV, PACKAGE)
    known = textarena.envs.registration.ENV_REGISTRY
    if id not in known:
        raise ConfigError(f"textarena: there is no game {id!r}; {nearest(id, known)}")
    try:
        game = textarena.make(id, **kwargs)
    except Exception as error:  # an option that it does not have, words that it would download
        raise ConfigError(
            f"textarena {id!r}: it cannot be created ({summarise_error(error)}); check env.kwargs"
        ) from None
    while isinstance(game, textarena.Wrapper):
        game = game.env
    refuse_eval(ENV, id, _find_folder(type(game).__module__))
    return game


def _find_folder(module: str) -> Path:
    return Path(str(import_module(module).__file__)).parent
