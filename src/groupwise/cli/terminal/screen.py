"""What the commands print with: consoles, a progress bar over a file, words for numbers."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, is_dataclass
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
from rich.segment import Segment
from rich.text import Text

from groupwise.core.errors import FileError
from groupwise.core.text.safe_text import escape_controls
from groupwise.core.text.secrets import make_redactor, redact, redact_all

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

    Everything that the commands print passes here: recorded text may hold anything. What rich itself sends to move the
    cursor and to colour is kept apart from text, as the style or the control code of a segment.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(emoji=False, **options)
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
    """The console for errors and progress."""
    return SafeConsole(stderr=True)


def print_line(text: str, *, to: Console | None = None) -> None:
    """Print text as it is, however long its lines."""
    (to or output()).print(text, highlight=False, markup=False, soft_wrap=True)


def print_error(message: str) -> None:
    """Say in one line what is wrong."""
    errors().print(f"[bold red]error[/]: {escape(message)}", highlight=False, soft_wrap=True)


def print_json(value: Any) -> None:
    """Print plain data as JSON. In ASCII: it says the same in any locale, and sends nothing to a terminal."""
    write_text(json.dumps(redact_all(value), indent=2) + "\n")


def print_finite_json(value: Any) -> None:
    """Print dataclasses and plain data as JSON; what is no finite number becomes null."""
    print_json(_to_plain(value))


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
    """A share in per cent."""
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
