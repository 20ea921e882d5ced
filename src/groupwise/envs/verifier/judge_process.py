"""The verifier's process: it reads requests from a pipe and judges them one by one.

The process imports its judge, gives up its rights (`system.sandbox`), reports the active boundaries, and serves. It
ends with its parent, with its pipe, and after an answer that used too much memory.
"""

from __future__ import annotations

import importlib
import os
import resource
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from groupwise.envs.verifier.framed_pipe import MAX_BYTES, FramedPipe, JudgeAnswer, read_request, write_answer
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
    """The answer to a request, as it is sent; it is the last one if the memory peak is too high."""
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
