"""Finds secrets in text, and hides them in everything that is written or shown.

A secret is the value of an environment variable with a name such as `WANDB_API_KEY` or `HF_TOKEN`, a password or token
in a URL, an Authorization header, or a token of a well-known form. A run file refers to the variable as `${NAME}`. The
run stores this reference, and the value is only looked up when it is used.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from groupwise.system.errors import ConfigError, Problem

HIDDEN = "***"
"""The replacement of a secret."""
MIN_VALUE_CHARACTERS = 8
"""Shorter values of variables are flags and numbers, which any text may contain."""
MIN_REFUSED_CHARACTERS = 16
"""Length of values that a run file must not contain; shorter ones may be ordinary words of a run file."""

_SECRET_NAME = re.compile(
    r"(?:^|_)(?:API_?KEY|KEYS?|TOKENS?|SECRETS?|PASSWORDS?|PASSWD|PASSPHRASE|CREDENTIALS?|BEARER)(?:_|$)|_PWD$",
    re.IGNORECASE,
)
# A field of a run file: stricter, since `key_field`, `token_budget` and `end_token` are ordinary settings.
_SECRET_FIELD = re.compile(
    r"(?:^|_)(?:api_?key|access_key|secret_key|private_key|auth_key|password|passwd|passphrase|credentials?|authorization|"
    r"(?:access|api|auth|bearer|refresh|secret|session|hf|github|wandb)_token|client_secret)$",
    re.IGNORECASE,
)
_LONG_SECRET_FIELD = re.compile(rf"{_SECRET_FIELD.pattern}|^(?:token|secret)$", re.IGNORECASE)
"""`token` and `secret` may also be a piece of a game or a word to guess: only long values are secrets."""
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
"""The user in a URL whose password is a reference."""


def redact(text: str) -> str:
    """The text with `***` for each secret.

    >>> redact("cannot reach https://me:hunter22@example.org/ws?token=abc&n=3")
    'cannot reach https://***@example.org/ws?token=***&n=3'
    """
    if len(text) < MIN_VALUE_CHARACTERS:  # a report redacts thousands of short labels and numbers
        return text
    return make_redactor()(text)


def make_redactor(min_characters: int = MIN_VALUE_CHARACTERS) -> Callable[[str], str]:
    """`redact` with the present environment variables, for many texts."""
    variables = os.environ.items()
    secret = [value for name, value in variables if len(value) >= min_characters and _is_secret_name(name)]
    return _redactor(tuple(sorted(secret)))


def redact_all(value: Any) -> Any:
    return _in_texts(value, make_redactor())


def check_no_secret(content: Mapping[str, Any]) -> None:
    """Raise a ConfigError if settings contain a secret: a run stores its settings, and reports show them."""
    hide = make_redactor(MIN_REFUSED_CHARACTERS)
    for path, name, text in _texts(content, ""):
        value = _REFERENCE.sub("", _NAMED_USER.sub("://", text))  # a reference is no secret
        is_field = _SECRET_FIELD if len(value) < MIN_REFUSED_CHARACTERS else _LONG_SECRET_FIELD
        if value and (hide(value) != value or is_field.search(name)):
            problem = (
                "this is a secret, and the run folder would store it; put it into an environment variable and write "
                "${NAME} here (docs/why/security.md lists the settings that accept this)"
            )
            raise ConfigError(problems=[Problem(tuple(path.split(".")), problem)])


def resolve_references(value: Any) -> Any:
    """Plain data with each `${NAME}` replaced by the value of this environment variable."""

    def look_up(reference: re.Match[str]) -> str:
        found = os.environ.get(reference[1])
        if found is None:
            raise ConfigError(
                f"the environment variable {reference[1]} is not set, but a setting uses it as {reference[0]}; set it"
            )
        return found

    return _in_texts(value, lambda text: _REFERENCE.sub(look_up, text))


def _in_texts(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {key: _in_texts(inner, change) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_in_texts(inner, change) for inner in value]
    return value


@lru_cache(1024)
def _is_secret_name(name: str) -> bool:
    return _SECRET_NAME.search(name) is not None


@lru_cache(16)
def _redactor(values: tuple[str, ...]) -> Callable[[str], str]:
    # The longest first: one secret may be the beginning of another.
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
    """Every text of plain data: its path, the name of its setting, and the text."""
    if isinstance(value, str):
        yield path, name, value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _texts(inner, f"{path}.{key}" if path else str(key), str(key))
    elif isinstance(value, list | tuple):
        for number, inner in enumerate(value):
            yield from _texts(inner, f"{path}[{number}]", name)
