"""Secrets: found in text, left out of whatever is written or shown, and kept in environment variables.

A secret is the value of an environment variable whose name says so (`WANDB_API_KEY`, `HF_TOKEN`), a password or token
within a URL, an Authorization header, or a token of a well-known form. A run file names the variable instead, as
`${NAME}`; the reference is what gets written down, and only whoever connects looks the value up.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from groupwise.system.errors import ConfigError

HIDDEN = "***"
"""What stands where a secret stood."""
MIN_VALUE_CHARACTERS = 8
"""Values of variables that are shorter are flags and numbers: they stand in any text by chance."""
MIN_REFUSED_CHARACTERS = 16
"""Values that a run file may not hold; shorter ones may be words that it uses for something else."""

_SECRET_NAME = re.compile(
    r"(?:^|_)(?:API_?KEY|KEYS?|TOKENS?|SECRETS?|PASSWORDS?|PASSWD|PASSPHRASE|CREDENTIALS?|BEARER)(?:_|$)|_PWD$",
    re.IGNORECASE,
)
# A field of a run file: stricter, since `key_field`, `token_budget` and `end_token` are settings like others.
_SECRET_FIELD = re.compile(
    r"(?:^|_)(?:api_?key|access_key|secret_key|private_key|auth_key|password|passwd|passphrase|credentials?|authorization|"
    r"(?:access|api|auth|bearer|refresh|secret|session|hf|github|wandb)_token|client_secret)$",
    re.IGNORECASE,
)
_LONG_SECRET_FIELD = re.compile(rf"{_SECRET_FIELD.pattern}|^(?:token|secret)$", re.IGNORECASE)
"""A piece of a game, or a word to guess, is called so too: a secret where it is long."""
_SECRET_PARAMETER = (
    r"(?:[\w-]*(?:token|secret|password|passwd|signature|credential)|[\w-]*api[_-]?key|key|sig|auth|authorization)"
)
_PATTERNS = (
    # https://user:password@host and https://token@host
    (re.compile(r"(\b[a-z][a-z0-9+.-]{0,20}://)[^\s/?#@\"'<>]+@", re.IGNORECASE), rf"\g<1>{HIDDEN}@"),
    # ?token=..., &api_key=...
    (re.compile(rf"([?&;]{_SECRET_PARAMETER}=)[^\s&;#\"'<>]+", re.IGNORECASE), rf"\g<1>{HIDDEN}"),
    # Authorization: Bearer ..., "x-api-key": "..."
    (
        re.compile(
            r"\b((?:proxy-)?authorization[\"']?\s{0,4}[:=]\s{0,4}[\"']?(?:[a-z]{1,20}\s+)?|x-api-key[\"']?\s{0,4}[:=]\s{0,4}[\"']?"
            r"|bearer\s+)(?!\*\*\*)[^\s\"',;]{4,}",
            re.IGNORECASE,
        ),
        rf"\g<1>{HIDDEN}",
    ),
    # OpenAI, Hugging Face, GitHub, Slack, AWS
    (
        re.compile(
            r"\b(?:sk-[\w-]{20,}|hf_\w{20,}|gh[pousr]_\w{20,}|github_pat_\w{20,}|xox[abprs]-[\w-]{10,}|AKIA[0-9A-Z]{16})"
        ),
        HIDDEN,
    ),
)
_REFERENCE = re.compile(r"\$\{([A-Za-z_]\w*)\}")
_NAMED_USER = re.compile(r"://(?:[^\s/?#@:]*:)?\$\{\w+\}@")
"""Who asks, in a URL whose password is a reference."""


def redact(text: str) -> str:
    """The text with `***` in the place of each secret.

    >>> redact("cannot reach https://me:hunter22@example.org/ws?token=abc&n=3")
    'cannot reach https://***@example.org/ws?token=***&n=3'
    """
    if len(text) < MIN_VALUE_CHARACTERS:  # a page is made of thousands of labels and numbers
        return text
    return make_redactor()(text)


def make_redactor() -> Callable[[str], str]:
    """What `redact` does with the variables as they are now, for many texts."""
    return _redactor(tuple(sorted(_secret_values())))


def redact_all(value: Any) -> Any:
    """Plain data, tables and lists included, with every text redacted."""
    return _in_texts(value, make_redactor())


def check_no_secret(content: Mapping[str, Any]) -> None:
    """Refuse settings that hold a secret: a run keeps its settings, and shows them to whoever reads it."""
    hide = _redactor(tuple(sorted(_secret_values(MIN_REFUSED_CHARACTERS))))
    for path, name, text in _texts(content, ""):
        value = _REFERENCE.sub("", _NAMED_USER.sub("://", text))  # what is only named is no secret
        is_field = _SECRET_FIELD if len(value) < MIN_REFUSED_CHARACTERS else _LONG_SECRET_FIELD
        if value and (hide(value) != value or is_field.search(name)):
            raise ConfigError(
                f"{path} holds a secret, which would be kept in the run's folder; put it into an environment variable, "
                "and write ${NAME} where it stood (docs/why/security.md says which settings take that)",
                key=path.split("."),
            )


def resolve_references(value: Any) -> Any:
    """Plain data with each `${NAME}` in its texts replaced by the environment variable of that name."""
    return _in_texts(value, lambda text: _REFERENCE.sub(_look_up, text))


def _in_texts(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {key: _in_texts(inner, change) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_in_texts(inner, change) for inner in value]
    return value


def _look_up(reference: re.Match[str]) -> str:
    value = os.environ.get(reference[1])
    if value is None:
        raise ConfigError(f"the environment variable {reference[1]} is not set; a setting names it as {reference[0]}")
    return value


def _secret_values(min_characters: int = MIN_VALUE_CHARACTERS) -> Iterator[str]:
    for name, value in os.environ.items():
        if len(value) >= min_characters and _is_secret_name(name):
            yield value


@lru_cache(1024)
def _is_secret_name(name: str) -> bool:
    return _SECRET_NAME.search(name) is not None


@lru_cache(16)
def _redactor(values: tuple[str, ...]) -> Callable[[str], str]:
    # The longest first: a secret may begin with another.
    known = (
        re.compile("|".join(re.escape(value) for value in sorted(values, key=len, reverse=True))) if values else None
    )

    def hide(text: str) -> str:
        redacted = known.sub(HIDDEN, text) if known else text
        for pattern, shown in _PATTERNS:
            redacted = pattern.sub(shown, redacted)
        return redacted

    return hide


def _texts(value: Any, path: str, name: str = "") -> Iterator[tuple[str, str, str]]:
    """Every text of plain data: where it stands, the name of its setting, and the text."""
    if isinstance(value, str):
        yield path, name, value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _texts(inner, f"{path}.{key}" if path else str(key), str(key))
    elif isinstance(value, list | tuple):
        for number, inner in enumerate(value):
            yield from _texts(inner, f"{path}[{number}]", name)
