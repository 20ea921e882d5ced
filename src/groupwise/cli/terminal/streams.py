"""The process's own streams: open, able to say every character, and without anybody's control characters or secrets."""

from __future__ import annotations

import io
import logging
import os
import sys
import traceback
import warnings
from types import TracebackType
from typing import Any, NoReturn, TextIO

from groupwise.cli.terminal.screen import CANNOT_WRITE, errors, print_error
from groupwise.core.text.safe_text import escape_controls
from groupwise.core.text.secrets import redact

STREAMS = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))
"""Names and modes of the streams, in the order of their numbers."""

CHATTY = ("torchao", "torch.utils._pytree", "bitsandbytes")
"""Loggers of packages that transformers and peft import wherever they are installed, whether a run uses them or not:
they warn of libraries for other machines that could not be loaded, and torch of how torchao registers itself."""


def prepare_streams() -> None:
    """Make sure that whatever is printed, warned of or logged can be, and is safe to show."""
    for number, (name, mode) in enumerate(STREAMS):
        _open_if_closed(number, name, mode)
    if isinstance(sys.stdout, io.TextIOWrapper):  # standard error writes escapes in any case
        sys.stdout.reconfigure(errors="replace")  # a locale without a character costs that character only
    logging.setLogRecordFactory(SafeLogRecord)
    for name in CHATTY:
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.showwarning = _show_warning


def finish_streams(status: int) -> NoReturn:
    """End with this status; where the last words cannot be written, with a line that says so."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read has seen enough
        _drop_output()
        status = status or 1
    except OSError as error:
        _drop_output()
        if not status:
            print_error(f"{CANNOT_WRITE} ({error.strerror}); send it elsewhere")
        status = status or 2
    sys.exit(status)


class SafeLogRecord(logging.LogRecord):
    """A line of a log, ours or another package's, that says nothing to a terminal and gives no secret away."""

    def __init__(self, *fields: Any, **options: Any) -> None:
        super().__init__(*fields, **options)
        if self.exc_info and self.exc_info[0]:  # a formatter takes the text that is there
            self.exc_text = _show_safely("".join(traceback.format_exception(*self.exc_info)).rstrip())
        if self.stack_info:
            self.stack_info = _show_safely(self.stack_info)

    def getMessage(self) -> str:  # noqa: N802 - the name that logging calls
        """The line with its arguments."""
        return _show_safely(super().getMessage())


def _open_if_closed(number: int, name: str, mode: str) -> None:
    """Fill a closed stream with nothing: else the next file to be opened, a journal perhaps, would take its number."""
    try:
        os.fstat(number)
    except OSError:
        os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
    if getattr(sys, name) is None:
        setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - as long as the process lasts


def _drop_output() -> None:
    """Let the interpreter's own last flush go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    errors().print(f"{category.__name__}: {message}", markup=False, highlight=False, soft_wrap=True)


def show_traceback(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Show an error that nobody expected, as Python would, and safely."""
    sys.stderr.write(_show_safely("".join(traceback.format_exception(kind, error, trace))))


def _show_safely(text: str) -> str:
    return escape_controls(redact(text))
