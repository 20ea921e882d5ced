"""What the commands print with: consoles, a progress bar over a file, words for numbers."""

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
    except BrokenPipeError:  # whoever read has seen enough
        raise
    except OSError as error:
        raise FileError(f"{CANNOT_WRITE} ({error.strerror}); send it elsewhere") from None


class SafeConsole(Console):
    """A console that shows control characters, marks of direction and secrets, and never sends them.

    What rich itself sends to move the cursor and to colour is the style or the control code of a segment, not text.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(emoji=False, highlight=False, **options)
        self._hide = make_redactor()

    def print(self, *objects: Any, **options: Any) -> None:
        """Print; a disk that is full is an error of ours, and a reader who has seen enough ends the command."""
        # Where standard error fails, there is nowhere left to complain.
        with suppress(OSError) if self.stderr else _name_full_disk():
            super().print(*objects, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """A text as it is laid out: escaped here already, so that tables measure what they will show."""
        return super().render_str(escape_controls(self._hide(text)), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The pieces of whatever is printed, each escaped."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(escape_controls(segment.text), segment.style)


def escape_recorded(text: str) -> str:
    """A recorded text as `rich.text.Text` may hold it, which would drop some control characters without a word."""
    return escape_controls(redact(text))


def output() -> Console:
    """The console for results; as wide as the terminal, or wide enough for a pipe."""
    return SafeConsole(width=None if sys.stdout.isatty() else 140)


def errors() -> Console:
    return SafeConsole(stderr=True)


def print_line(text: str, *, markup: bool = False, to: Console | None = None) -> None:
    """Print text however long its lines: as it is, or with rich's marks, where all that is not ours is escaped."""
    (to or output()).print(text, markup=markup, soft_wrap=True)


def print_error(message: str) -> None:
    print_line(f"[bold red]error[/]: {escape(message)}", markup=True, to=errors())


def make_table(*headings: str, align: str = "lr", title: str = "", bold: bool = False) -> Table:
    """A table without lines.

    Args:
        headings: a column each.
        align: a letter for each column, l or r; the last one is that of the columns that follow, too.
        title: what stands above it.
        bold: whether the first column is bold.
    """
    table = Table(title=title or None, title_justify="left", box=None, pad_edge=bool(title))
    for place, heading in enumerate(headings):
        side: Literal["left", "right"] = "right" if align[min(place, len(align) - 1)] == "r" else "left"
        table.add_column(heading, justify=side, style="bold" if bold and not place else None)
    return table


def print_json(value: Any) -> None:
    """Print dataclasses and plain data as JSON; what is no finite number becomes null.

    In ASCII: it says the same in any locale, and sends nothing to a terminal.
    """
    write_text(to_json(redact_all(_to_plain(value))))


def write_text(text: str) -> None:
    """Write text of ours, which needs no escaping."""
    with _name_full_disk():
        sys.stdout.write(text)
        sys.stdout.flush()


@contextmanager
def file_progress(size: int, title: str) -> Iterator[Callable[[int], None]]:
    """A progress bar over a file's bytes, on a terminal and for files that take a while; nothing otherwise."""
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
    """One line of text, cut with an ellipsis."""
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1] + "…"


def format_plain_percent(part: float) -> str:
    """A share between 0 and 1 in per cent."""
    return f"{100 * part:.1f} %"


def _to_plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return _to_plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(key): _to_plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_to_plain(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


# The process's own streams: open, able to say every character, and without anybody's control characters or secrets.

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
            self.exc_text = escape_recorded("".join(traceback.format_exception(*self.exc_info)).rstrip())
        if self.stack_info:
            self.stack_info = escape_recorded(self.stack_info)

    def getMessage(self) -> str:  # noqa: N802 - the name that logging calls
        return escape_recorded(super().getMessage())


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
    print_line(f"{category.__name__}: {message}", to=errors())


def show_traceback(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Show an error that nobody expected, as Python would, and safely."""
    sys.stderr.write(escape_recorded("".join(traceback.format_exception(kind, error, trace))))
