"""textarena's games for one player."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache, partial
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from groupwise.data.records import Task
from groupwise.envs.kit.eval_scan import refuse_eval
from groupwise.envs.kit.package_games import (
    BEGINNING,
    GameEnvironment,
    GameReply,
    PackageGames,
    build_instance_panels,
    collect_words_in_files,
    digest_instance,
    summarise_error,
)
from groupwise.envs.kit.packages import package_version, report_missing_package
from groupwise.envs.kit.panel import Panels, PanelSizes, check_env, choose_split, panel_sizes_of
from groupwise.envs.kit.words import vocabulary_of
from groupwise.system.errors import ConfigError, nearest

ENV = "textarena"
PACKAGE = "textarena"


class Textarena(PackageGames, slot="env"):
    """A game of textarena (Guertler et al. 2025, arXiv:2504.11442) for one player, such as "FrozenLake-v0".

    The goal is the game's own prompt, so that it is said once; a text is what the game said since the last action, and
    the board. A game pays at its end: 1 where it is solved, often a part of that where it is not. A fork is a copy.

    Choices: the `state_key` is the board; in games without one, the actions and what was said to them, in any order. An
    action is put into the brackets that games look for, unless it has some. Two refused actions in a row end most
    games; `allowed_errors` says how many are forgiven instead. A game's own limit on turns is one of its rules, so it
    terminates the attempt. An instance's split follows from what its seed makes, so a game with few instances has small
    panels, and one with a single instance none. There is no expert.
    """

    id: str
    """Name in textarena's registry, without the ending of a wrapper."""
    allowed_errors: Annotated[int, Field(ge=0)] | None = None
    """Refused actions in a row that a game forgives; None = as many as it does by itself, usually 1."""

    def panel(self, split: str) -> tuple[Task, ...]:
        return choose_split(_build_panels(self.id, self.options, self.seeds_differ, panel_sizes_of(self)), split)

    def open(self, task: Task) -> GameEnvironment:
        check_env(task, ENV)
        payload = task.payload
        begin = partial(
            TextarenaGame,
            str(payload["id"]),
            payload["kwargs"],
            task.seed,
            allowed_errors=self.allowed_errors,
            success_reward=self.success_reward,
            seeds_differ=self.seeds_differ,
        )
        return self.open_copy(task, begin)

    def vocabulary(self) -> tuple[str, ...]:
        known = _collect_words(type(_make_game(self.id, self.kwargs)).__module__)
        return vocabulary_of((self.instruction(), BEGINNING, *self.actions, *self.words, *known))


class TextarenaGame:
    """A game of textarena, from its beginning."""

    def __init__(
        self,
        id: str,
        kwargs: Mapping[str, Any],
        seed: int,
        *,
        allowed_errors: int | None = None,
        success_reward: float = 1.0,
        seeds_differ: bool = False,
    ) -> None:
        self.inner: Any = _make_game(id, kwargs)
        self._solved_at = success_reward
        self._said: frozenset[str] = frozenset()
        self._board = self.goal = ""
        try:
            self.inner.reset(num_players=1, seed=seed)
        except Exception as error:  # a game says in its own way that it is for two, or that words are missing
            raise _refuse_game(id, summarise_error(error)) from None
        if type(self.inner.state).__name__ != "SinglePlayerState":  # some begin alone, and wait for the others
            raise _refuse_game(id, f"it keeps a {type(self.inner.state).__name__}")
        if allowed_errors is not None:
            self.inner.state.error_allowance = allowed_errors
        message = self._read()
        self.first = self._make_reply(message or ("" if self._board else BEGINNING))
        self.instance = digest_instance(
            self.inner.state.game_state, self.goal, self._board, seed if seeds_differ else None
        )

    def play(self, action: str) -> GameReply:
        """Take an action."""
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
        """What the game said since it was last read; the prompt becomes the goal, the board is kept."""
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


@lru_cache(8)
def _build_panels(id: str, kwargs: str, seeds_differ: bool, sizes: PanelSizes) -> Panels:
    options = json.loads(kwargs)
    payload = {"id": id, "kwargs": options, "version": package_version(ENV, PACKAGE)}
    begin = partial(TextarenaGame, id, options, seeds_differ=seeds_differ)
    return build_instance_panels(ENV, begin, payload, sizes=sizes, tag=id)


def _make_game(id: str, kwargs: Mapping[str, Any]) -> Any:
    """A game without the wrappers that put all that was ever said into one text."""
    try:
        textarena = import_module(PACKAGE)
    except ImportError:
        raise report_missing_package(ENV) from None
    known = textarena.envs.registration.ENV_REGISTRY
    if id not in known:
        raise ConfigError(f"textarena: there is no game {id!r}; {nearest(id, known)}")
    try:
        game = textarena.make(id, **kwargs)
    except Exception as error:  # an option that it does not have, words that it would download
        raise ConfigError(
            f"textarena {id!r}: it cannot be made ({summarise_error(error)}); look at env.kwargs"
        ) from None
    while isinstance(game, textarena.Wrapper):
        game = game.env
    refuse_eval(ENV, id, _find_folder(type(game).__module__))
    return game


def _find_folder(module: str) -> Path:
    return Path(str(import_module(module).__file__)).parent


def _refuse_game(id: str, reason: str) -> ConfigError:
    return ConfigError(f"textarena {id!r}: it does not begin with one player ({reason}); name a game for one")


def _collect_words(module: str) -> tuple[str, ...]:
    """All that a game can say: the texts in its own files, and those of the package that speak of every game."""
    own = _find_folder(module)
    package = Path(str(import_module(PACKAGE).__file__)).parent
    english = [file for file in (own / "locales" / "en.json", package / "locales" / "en.json") if file.exists()]
    return collect_words_in_files(own, package / "state.py", package / "core.py", *english)
