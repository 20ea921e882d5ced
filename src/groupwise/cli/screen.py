"""Printing: consoles, a progress bar over a file, number formats, and safe standard streams."""

from __future__ import annotations

import io
import logging
import math
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, is_dataclass
from types import TracebackType
from typing import Any, Literal, NoReturn, TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from groupwise.system.errors import FileError
from groupwise.system.json_text import to_json
from groupwise.system.secrets import make_redactor, redact, redact_all
from groupwise.system.text import escape_controls

CANNOT_WRITE = "standard output cannot be written"


@contextmanager
def _name_full_disk() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:  # the reader closed the pipe
        raise
    except OSError as error:
        raise FileError(f"{CANNOT_WRITE} ({error.strerror}); redirect it to another place") from None


class SafeConsole(Console):
    """A console that escapes control characters and direction marks in texts, and hides secrets.

    Rich's own colours and cursor moves are styles and control segments, not text, so they still work.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(emoji=False, highlight=False, **options)
        self._hide = make_redactor()

    def print(self, *objects: Any, **options: Any) -> None:
        # If standard error fails, the error cannot be reported.
        with suppress(OSError) if self.stderr else _name_full_disk():
            super().print(*objects, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Escape a text before layout: tables measure the width of what they print."""
        return super().render_str(escape_controls(self._hide(text)), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(escape_controls(segment.text), segment.style)


def escape_recorded(text: str) -> str:
    """Escape a recorded text for `rich.text.Text`, which silently drops some control characters."""
    return escape_controls(redact(text))


def output() -> Console:
    """The console for results: as wide as the terminal, or 140 columns in a pipe."""
    return SafeConsole(width=None if sys.stdout.isatty() else 140)


def errors() -> Console:
    return SafeConsole(stderr=True)


def print_line(text: str, *, markup: bool = False, to: Console | None = None) -> None:
    """Print text without wrapping. With `markup`, the caller must escape everything that is not ours."""
    (to or output()).print(text, markup=markup, soft_wrap=True)


def print_error(message: str) -> None:
    print_line(f"[bold red]error[/]: {escape(message)}", markup=True, to=errors())


def make_table(*headings: str, align: str = "lr", title: str = "", bold: bool = False) -> Table:
    """A table without lines.

    `align` has one letter (l or r) per column; the last one also counts for the columns after it. `bold` is for the
    first column.
    """
    table = Table(title=title or None, title_justify="left", box=None, pad_edge=bool(title))
    for place, heading in enumerate(headings):
        side: Literal["left", "right"] = "right" if align[min(place, len(align) - 1)] == "r" else "left"
        table.add_column(heading, justify=side, style="bold" if bold and not place else None)
    return table


def print_json(value: Any) -> None:
    """Print dataclasses and plain data as ASCII JSON; NaN and infinity become null."""
    write_text(to_json(redact_all(_to_plain(value))))


def write_text(text: str) -> None:
    """Write our own text, which needs no escaping."""
    with _name_full_disk():
        sys.stdout.write(text)
        sys.stdout.flush()


@contextmanager
def file_progress(size: int, title: str) -> Iterator[Callable[[int], None]]:
    """A progress bar over a file's bytes, on a terminal and for large files only."""
    if size < 8 * 2**20 or not sys.stderr.isatty():
        yield lambda done: None
        return
    bar = Progress(
        TextColumn(title), BarColumn(), DownloadColumn(), TimeRemainingColumn(), console=errors(), transient=True
    )
    with bar:
        task = bar.add_task(title, total=size)
        yield lambda done: bar.update(task, completed=done)


def format_share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


def shorten(text: str, width: int = 60) -> str:
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1] + "…"


def format_plain_percent(part: float) -> str:
    """A fraction between 0 and 1 in percent."""
    return f"{100 * part:.1f} %"


def _to_plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return _to_plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(key): _to_plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_to_plain(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


# The standard streams: always open, able to print every character, without control characters and secrets.

CHATTY = ("torchao", "torch.utils._pytree", "bitsandbytes")
"""Loggers with warnings that do not matter. transformers and peft import these packages even if a run does not use
them: they warn about libraries of other machines, and torch about torchao."""


def prepare_streams() -> None:
    """Make everything that is printed, warned or logged printable and safe."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(number)
        except OSError:  # closed: the next opened file, perhaps a journal, would get this number
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - until the process ends
    if isinstance(sys.stdout, io.TextIOWrapper):  # standard error escapes such characters already
        sys.stdout.reconfigure(errors="replace")  # replace characters that the locale does not have
    logging.setLogRecordFactory(SafeLogRecord)
    for name in CHATTY:
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.showwarning = _show_warning


def finish_streams(status: int) -> NoReturn:
    """Flush the output and exit with this status; report it if the last output cannot be written."""
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the interpreter's own last flush
        if isinstance(error, BrokenPipeError):  # the reader closed the pipe
            sys.exit(status or 1)
        if not status:
            print_error(f"{CANNOT_WRITE} ({error.strerror}); redirect it to another place")
        status = status or 2
    sys.exit(status)


class SafeLogRecord(logging.LogRecord):
    """A log line, ours or another package's, without control characters and secrets."""

    def __init__(self, *fields: Any, **options: Any) -> None:
        super().__init__(*fields, **options)
        if self.exc_info and self.exc_info[0]:  # a formatter uses this text if it is set
            self.exc_text = escape_recorded("".join(traceback.format_exception(*self.exc_info)).rstrip())
        if self.stack_info:
            self.stack_info = escape_recorded(self.stack_info)

    def getMessage(self) -> str:  # noqa: N802 - the name that logging calls
        return escape_recorded(super().getMessage())


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    print_line(f"{category.__name__}: {message}", to=errors())


def show_traceback(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Show an unexpected error as Python does, but escaped."""
    sys.stderr.write(escape_recorded("".join(traceback.format_exception(kind, error, trace))))
