"""The messages between a verifier and its client: JSON in frames of limited length, never objects.

A frame is four bytes of length and as many bytes of JSON. Each request has a number, which its answer must repeat. The
verifier is not trusted, like the answers that it judges. A frame breaks the protocol if it is too long, is not JSON,
has another form or another number, or is followed by extra bytes.
"""

from __future__ import annotations

import json
import math
import os
import select
import struct
import time
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, get_args

from pydantic_core import PydanticSerializationError, from_json, to_json

Kind = Literal["answered", "failed", "fault"]
"""The result of a request: an answer, a judge that failed, or an invalid request."""
MAX_BYTES = 2**24
"""Limit of a frame: large enough for a page of questions, too small to fill the memory."""
_LENGTH = struct.Struct("!I")
_CHUNK = 2**16
_KINDS = get_args(Kind)
_WORDS = (b"false", b"true")


class ProtocolError(ValueError):
    """A message breaks the protocol."""


class FramedPipe:
    """One end of the pipe. With a deadline it never blocks, even if the other end stops."""

    def __init__(self, descriptor: int, *, blocks: bool) -> None:
        self._descriptor = descriptor
        os.set_blocking(descriptor, blocks)
        self._readable, self._writable = select.poll(), select.poll()
        self._readable.register(descriptor, select.POLLIN)
        self._writable.register(descriptor, select.POLLOUT)

    def send(self, frame: bytes, *, within: float | None = None) -> None:
        """Write a frame; raise TimeoutError if it is not read in time."""
        if len(frame) > MAX_BYTES:
            raise ProtocolError(f"a message of {len(frame)} bytes; at most {MAX_BYTES} are sent")
        until = None if within is None else time.monotonic() + within
        left = memoryview(_LENGTH.pack(len(frame)) + frame)
        while left:
            try:
                left = left[os.write(self._descriptor, left) :]
            except BlockingIOError:
                _wait(self._writable, until)

    def receive(self, *, within: float | None = None) -> bytes:
        """Read exactly one frame; raise TimeoutError if it is late, and EOFError at the end."""
        until = None if within is None else time.monotonic() + within
        frame = self._read(until)
        while True:
            if len(frame) >= _LENGTH.size:
                whole = _LENGTH.size + _LENGTH.unpack_from(frame)[0]
                if whole > MAX_BYTES + _LENGTH.size:
                    raise ProtocolError(f"a message of {whole} bytes; at most {MAX_BYTES} are read")
                if len(frame) > whole:
                    raise ProtocolError("more than one answer")
                if len(frame) == whole:
                    return frame[_LENGTH.size :]
            frame += self._read(until)

    def is_quiet(self) -> bool:
        return not self._readable.poll(0)

    def close(self) -> None:
        os.close(self._descriptor)

    def _read(self, until: float | None) -> bytes:
        if until is not None:
            _wait(self._readable, until)
        read = os.read(self._descriptor, _CHUNK)
        if not read:
            raise EOFError
        return read


def _wait(poll: select.poll, until: float | None) -> None:
    left = None if until is None else max(0.0, 1000 * (until - time.monotonic()))
    if not poll.poll(left):
        raise TimeoutError


def write_request(call: int, request: Mapping[str, Any], seconds: float) -> bytes:
    message = [call, seconds, dict(request)]
    try:
        return to_json(message)
    except (ValueError, PydanticSerializationError):  # a lone surrogate: ASCII escapes keep it
        return json.dumps(message, allow_nan=False).encode()


def read_request(frame: bytes) -> tuple[int, float, dict[str, Any]]:
    """A request, inside the verifier; its sender is trusted."""
    try:
        call, seconds, request = from_json(frame)
    except ValueError:  # a lone surrogate
        call, seconds, request = json.loads(frame)
    return call, seconds, request


class JudgeAnswer(NamedTuple):
    """A verifier's answer to a call."""

    kind: Kind
    content: Any
    is_last: bool = False
    """Whether the verifier ends after it."""


def write_answer(call: int, answer: JudgeAnswer) -> bytes:
    """An answer as a JSON list (no names that could occur twice); raise ValueError or TypeError for other values."""
    if type(answer.content) is float and math.isfinite(answer.content):  # the usual one, at once
        return b'[%d, "answered", %s, %s]' % (call, float.__repr__(answer.content).encode(), _WORDS[answer.is_last])
    return json.dumps([call, *answer], allow_nan=False).encode()


def read_answer_to(call: int, frame: bytes) -> JudgeAnswer:
    """A verifier's answer to a call; raise ProtocolError for anything else."""
    try:
        message = from_json(frame, allow_inf_nan=False, cache_strings="none")
    except ValueError:
        raise ProtocolError("an answer that is not JSON") from None
    if type(message) is not list or len(message) != 4 or message[1] not in _KINDS or type(message[3]) is not bool:
        raise ProtocolError("an answer of another form")
    if type(message[0]) is not int or message[0] != call:
        raise ProtocolError("an answer to another call")
    return JudgeAnswer(*message[1:])
