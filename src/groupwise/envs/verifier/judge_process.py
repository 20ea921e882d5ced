"""The verifier's process: it reads requests from a pipe and judges them one by one.

The process imports its judge, gives up its rights (`system.sandbox`), reports the active boundaries, and serves. It
ends with its parent, with its pipe, and after an answer that used too much memory.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import resource
import select
import signal
import struct
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Literal, NamedTuple, get_args

from pydantic_core import PydanticSerializationError, from_json, to_json

from groupwise.system.errors import GroupwiseError
from groupwise.system.sandbox import confine, die_with_parent, filter_calls
from groupwise.system.text import quote_line

MAX_MEMORY = 2 * 2**30
"""Address space of the process: an answer such as 9^9^9^9 must not fill the memory."""
MAX_PEAK_MEMORY = 2**30
"""Bytes; a process whose peak was higher is replaced after its answer."""
MAX_FAULT_CHARACTERS = 3000
"""Limit of an error message about a request; some list all names."""
NOT_HELD = "could not give up its right to make system calls"

Judge = Callable[[Mapping[str, Any]], Any]


def serve(descriptor: int, judge: str, parent: int, *, apart: bool) -> None:
    """Judge requests until the pipe closes. The first message has the active boundaries, or the start-up error.

    `apart`: a child process judges each answer and then ends, so no answer can affect the next one.
    """
    die_with_parent(parent)
    os.set_inheritable(descriptor, False)
    pipe = FramedPipe(descriptor, blocks=True)
    # The default action: the kernel ends the process when the timer below runs out, whatever code is computing.
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the user's goes to the parent
    try:
        module, _, function = judge.partition(":")
        answer_judge: Judge = getattr(importlib.import_module(module), function)()
    except Exception as error:  # a foreign package may raise anything; the parent reports it
        pipe.send(write_answer(0, JudgeAnswer("failed", quote_line(f"{type(error).__name__}: {error}"))))
        return
    boundaries = confine(max_memory=MAX_MEMORY, filters_calls=not apart)
    # On Linux the peak starts with that of the parent process, and a trainer is large.
    max_peak = max(MAX_PEAK_MEMORY, measure_peak_memory())
    pipe.send(write_answer(0, JudgeAnswer("answered", sorted(boundaries))))
    while True:
        try:
            frame = pipe.receive()
        except EOFError:
            return
        pipe.send(
            _judge_apart(answer_judge, frame, pipe) if apart else answer_frame(answer_judge, frame, max_peak=max_peak)
        )


def answer_frame(judge: Judge, frame: bytes, *, max_peak: int) -> bytes:
    call, seconds, request = read_request(frame)
    kind, content, is_last = _judge_request(judge, request, seconds)
    is_last = is_last or measure_peak_memory() > max_peak
    try:
        return write_answer(call, JudgeAnswer(kind, content, is_last))
    except (ValueError, TypeError, RecursionError):  # not a number, or nothing that JSON has
        score = type(content).__name__
        with suppress(ValueError):  # an integer with more digits than Python writes
            score = repr(content) if isinstance(content, int | float | str) else score
        return write_answer(call, JudgeAnswer("failed", quote_line(f"gave the score {score}"), is_last))


def measure_peak_memory() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def _judge_request(judge: Judge, request: Mapping[str, Any], seconds: float) -> JudgeAnswer:
    # CPU seconds, not clock seconds: a busy machine must not make a right answer wrong.
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        return JudgeAnswer("answered", judge(request))
    except GroupwiseError as error:
        return JudgeAnswer("fault", quote_line(str(error), limit=MAX_FAULT_CHARACTERS))
    except MemoryError:
        return JudgeAnswer("failed", "ran out of memory", is_last=True)
    except Exception as error:  # a verifier may raise anything
        return JudgeAnswer("failed", quote_line(f"raised {type(error).__name__}: {error}", limit=300))
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)


def _judge_apart(judge: Judge, frame: bytes, pipe: FramedPipe) -> bytes:
    call, seconds, _ = read_request(frame)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        _answer_as_child(judge, frame, pipe, reader, writer)
    os.close(writer)
    with os.fdopen(reader, "rb") as child_pipe:
        answer = child_pipe.read(MAX_BYTES + 1)
    os.kill(child, signal.SIGKILL)  # its answer is complete
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code == 0 and answer:
        return answer
    return write_answer(call, JudgeAnswer("failed", describe_death(code, seconds)))


def _answer_as_child(judge: Judge, frame: bytes, pipe: FramedPipe, reader: int, writer: int) -> None:
    """Judge one answer and end. The child has no descriptor but the pipe for its own answer."""
    try:
        die_with_parent(os.getppid())
        pipe.close()
        os.close(reader)
        if filter_calls():
            answer = answer_frame(judge, frame, max_peak=sys.maxsize)  # it ends with this answer anyway
        else:
            answer = write_answer(read_request(frame)[0], JudgeAnswer("failed", NOT_HELD))
        os.write(writer, answer)
    finally:
        os._exit(0)


def describe_death(code: int, seconds: float) -> str:
    """The reason why a judging process ended, for the record of the answer."""
    if code == -signal.SIGPROF:
        return f"gave no verdict within {seconds:g} s of computing"
    if code == -signal.SIGSYS:
        return "was ended: the answer made it try to write, connect, or start or stop a process"
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"


# The messages between a verifier and its client: JSON in frames of limited length, never objects.
#
# A frame is four bytes of length and as many bytes of JSON. Each request has a number, which its answer must repeat.
# The verifier is not trusted, like the answers that it judges. A frame breaks the protocol if it is too long, is not
# JSON, has another form or another number, or is followed by extra bytes.

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
