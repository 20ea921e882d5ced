"""The display of a running command: live on a terminal, plain lines elsewhere."""

from __future__ import annotations

import statistics
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from groupwise.cli.screen import format_plain_percent, output, print_line
from groupwise.report.number_format import THIN_SPACE, format_seconds
from groupwise.report.overview import describe_penalties, rests_on_penalties
from groupwise.system.errors import FileError
from groupwise.training.evaluation.summary import describe_task_set
from groupwise.training.observer import RunObserver

if TYPE_CHECKING:
    from groupwise.store.journal import Alarm, Update
    from groupwise.training.evaluation.summary import Evaluation, PassAt, TasksSummary

SHOWN_METRICS = ("rollout/success", "rollout/return", "rollout/steps", "rollout/entropy", "learner/grad_norm")
BLOCKS = "▁▂▃▄▅▆▇█"
LAST_LINES = 5
MAX_FAULTS = 3
"""Different errors of an update that are printed."""
SPARK_WIDTH = 60


@contextmanager
def show_live(title: str, updates: int, *, plain: bool) -> Iterator[RunObserver]:
    """Show a run on the screen while it runs, and restore the terminal at the end."""
    console = output()
    if plain or not sys.stdout.isatty():
        lines = PlainLines(console)
        try:
            with lines.heartbeat:
                yield lines
        finally:
            lines.close()
        return
    display = LiveDisplay(title, updates)
    try:
        # Transient: the next output, perhaps an error, begins on a clean line. The summary is printed at the end.
        with Live(display, console=console, refresh_per_second=4, transient=True):
            yield display
    finally:
        for line in display.summary():
            print_line(line, to=console)


class EventLines(RunObserver):
    """Describes the events of a run in lines."""

    def __init__(self) -> None:
        self._rests_on_penalties: dict[int, bool] = {}

    def show(self, *lines: str, stays: bool) -> None:
        """Show lines; with `stays`, they stay on the screen until the end."""
        raise NotImplementedError

    def on_warm_start(self, losses: Sequence[float]) -> None:
        self.show(f"warm start: loss {losses[0]:.3f} to {losses[-1]:.3f} over {len(losses)} epochs", stays=True)

    def on_expert_faults(self, causes: Mapping[str, int], rollouts: int) -> None:
        self.show(*describe_expert_faults(causes, rollouts), stays=True)

    def on_evaluation(self, evaluation: Evaluation) -> None:
        when = f"after update {evaluation.number}" if evaluation.number else "before the first update"
        self.show(f"{when}: {describe_evaluation(evaluation)}", stays=True)

    def on_update(self, update: Update) -> None:
        faults = Counter(fault.error or fault.stop.value for fault in update.faults)
        lines = [format_update(update), *_describe_causes(faults)]
        self._rests_on_penalties[update.number] = rests_on_penalties(update.metrics)
        if self._rests_on_penalties[update.number]:
            lines.insert(1, "  the advantages come from penalties alone: no rollout got a reward")
        self.show(*lines, stays=False)

    def on_alarm(self, alarm: Alarm) -> None:
        self.show(alarm.line, stays=True)

    def describe_penalties(self) -> list[str]:
        numbers = [number for number, does in self._rests_on_penalties.items() if does]
        return list(filter(None, [describe_penalties(numbers, len(self._rests_on_penalties))]))


class PlainLines(EventLines):
    """One line per event, for logs and pipes. If nothing happens for a while, a line says what is being done."""

    def __init__(self, console: Console, *, clock: Clock = time.monotonic) -> None:
        super().__init__()
        self._console, self._clock = console, clock
        self._began = self._stage_began = clock()
        self._stage, self._number, self._so_far = "opening the run", 0, ""
        self.heartbeat = Heartbeat(self.describe_present, self._write, clock=clock)
        """Enter this context while the run lasts."""

    def on_stage(self, name: str, number: int) -> None:
        self._stage, self._number, self._so_far, self._stage_began = name, number, "", self._clock()

    def on_warm_start_epoch(self, losses: Sequence[float], epochs: int) -> None:
        self._so_far = f", epoch {len(losses)} of {epochs} done, loss {losses[-1]:.3f}"

    def show(self, *lines: str, stays: bool = True) -> None:
        for line in lines:
            self.heartbeat.note_line()
            self._write(line)

    def close(self) -> None:
        self.show(*self.describe_penalties())

    def describe_present(self) -> str:
        """The update, its stage, and the time so far."""
        now = self._clock()
        where = f"update {self._number}: " if self._number else ""
        stage = f"{where}{self._stage} for {format_duration(now - self._stage_began)}{self._so_far}"
        return f"{stage} ({format_duration(now - self._began)} in all)"

    def _write(self, line: str) -> None:
        print_line(line, to=self._console)


class LiveDisplay(EventLines):
    """Progress, sparklines, stage times and the last lines, redrawn a few times per second."""

    def __init__(self, title: str, updates: int) -> None:
        super().__init__()
        self._title, self._updates = title, updates
        self._done, self._began = 0, time.monotonic()
        self._stage, self._stage_began = "opening", self._began
        self._curves: dict[str, list[float]] = {"rollout/success": [], "rollout/return": []}
        self._seconds: dict[str, float] = {}
        self._durations: deque[float] = deque(maxlen=20)
        self._lines: deque[str] = deque(maxlen=LAST_LINES)
        self._kept: list[str] = []
        self._spinner = Spinner("dots")

    def on_stage(self, name: str, number: int) -> None:
        self._stage, self._stage_began = name, time.monotonic()

    def on_warm_start_epoch(self, losses: Sequence[float], epochs: int) -> None:
        self._stage = f"warm start, epoch {len(losses)} of {epochs} done, loss {losses[-1]:.3f}"

    def on_update(self, update: Update) -> None:
        super().on_update(update)
        self._done = update.number
        for name, curve in self._curves.items():
            if name in update.metrics:
                curve.append(update.metrics[name])
        self._seconds = stage_seconds_of(update)
        self._durations.append(sum(self._seconds.values()))

    def show(self, *lines: str, stays: bool) -> None:
        (self._kept if stays else self._lines).extend(lines)

    def summary(self) -> list[str]:
        """What stays on the screen: evaluations, the last update, and a warning about penalties."""
        return [*self._kept, *list(self._lines)[-1:], *self.describe_penalties()]

    def __rich__(self) -> RenderableType:
        parts: list[RenderableType] = [self._draw_progress(), self._draw_stage(), Text()]
        parts += [draw_sparkline_row(name, curve) for name, curve in self._curves.items() if curve]
        parts += [Text(line, style="cyan", overflow="ellipsis", no_wrap=True) for line in self._kept[-3:]]
        parts += [Text(line, style="dim", overflow="ellipsis", no_wrap=True) for line in self._lines]
        return Panel(Group(*parts), title=escape(self._title), title_align="left", border_style="dim")

    def _draw_progress(self) -> RenderableType:
        row = Table.grid(padding=(0, 1))
        left = format_duration(self.seconds_left()) if self._durations else "?"
        row.add_row(
            Text(f"update {self._done} of {self._updates}"),
            ProgressBar(total=max(self._updates, 1), completed=self._done, width=40),
            Text(f"{format_duration(time.monotonic() - self._began)} gone, {left} left"),
        )
        return row

    def _draw_stage(self) -> RenderableType:
        row = Table.grid(padding=(0, 1))
        stages = "  ".join(f"{name} {seconds:.2f} s" for name, seconds in self._seconds.items())
        running = f"{self._stage} {time.monotonic() - self._stage_began:.0f} s"
        row.add_row(
            self._spinner, Text(running, style="bold"), Text(stages and f"(last update: {stages})", style="dim")
        )
        return row

    def seconds_left(self) -> float:
        """Estimate from the median of the last updates."""
        return (self._updates - self._done) * statistics.median(self._durations or [0.0])


def format_update(update: Update) -> str:
    numbers = "  ".join(
        f"{name.partition('/')[2]} {update.metrics[name]:.3f}" for name in SHOWN_METRICS if name in update.metrics
    )
    return f"update {update.number:4d}  {numbers}  {sum(stage_seconds_of(update).values()):.2f} s"


def describe_expert_faults(causes: Mapping[str, int], rollouts: int) -> list[str]:
    counts = Counter(causes)
    return [
        f"warm start: {counts.total()} of {rollouts} expert rollouts ended with an error",
        *_describe_causes(counts),
    ]


def _describe_causes(causes: Counter[str]) -> list[str]:
    """Errors with their counts, the most frequent first."""
    listed = causes.most_common(MAX_FAULTS)
    return [f"  error in {count} rollout{'s' * (count > 1)}: {cause}" for cause, count in listed]


def stage_seconds_of(update: Update) -> dict[str, float]:
    return {
        name.removeprefix("seconds/"): value for name, value in update.metrics.items() if name.startswith("seconds/")
    }


def draw_sparkline_row(name: str, curve: Sequence[float]) -> Text:
    """A metric as a sparkline with its last value; success is drawn between 0 and 1."""
    bounds = (0.0, 1.0) if name == "rollout/success" else (min(curve), max(curve))
    return Text.assemble(
        f"{name.partition('/')[2]:<8}", (draw_sparkline(curve, *bounds), "green"), f" {curve[-1]:.3f}", no_wrap=True
    )


def draw_sparkline(curve: Sequence[float], low: float, high: float, width: int = SPARK_WIDTH) -> str:
    """A curve as a row of blocks; if it is longer than the row, neighbours are averaged.

    >>> draw_sparkline([0.0, 0.5, 1.0], 0.0, 1.0)
    '▁▅█'
    """
    num = min(len(curve), width)
    cuts = [len(curve) * i // num for i in range(num + 1)]
    means = [statistics.fmean(curve[a:b]) for a, b in pairwise(cuts)]
    span = high - low or 1.0
    return "".join(BLOCKS[min(int((mean - low) / span * len(BLOCKS)), len(BLOCKS) - 1)] for mean in means)


def format_duration(seconds: float) -> str:
    """A duration in words.

    >>> format_duration(42), format_duration(150), format_duration(7300)
    ('42 s', '2 min 30 s', '2 h 1 min')
    """
    return format_seconds(round(seconds)).replace(THIN_SPACE, " ")


# A progress line after a silence, so that a log shows that the work continues.

MAX_SILENCE = 10.0
"""Largest number of seconds between two lines."""
LOOKS_EVERY = 0.5
"""Seconds between two checks."""

Clock = Callable[[], float]
"""Seconds since a fixed moment."""


class Heartbeat:
    """A thread that prints what is being done if there was no line for almost `MAX_SILENCE` seconds."""

    def __init__(
        self, describe: Callable[[], str], say: Callable[[str], None], *, clock: Clock = time.monotonic
    ) -> None:
        self._describe, self._say, self._clock = describe, say, clock
        self._last_said = clock()
        self._lock, self._has_ended = Lock(), Event()
        self._thread = Thread(target=self._beat, name="groupwise-heartbeat", daemon=True)

    def note_line(self) -> None:
        """Another line was printed: start to wait again."""
        self._last_said = self._clock()

    def look(self) -> None:
        """Print what is being done, if it was silent for long enough."""
        with self._lock:
            if self._clock() - self._last_said >= MAX_SILENCE - LOOKS_EVERY:
                self.note_line()
                self._say(self._describe())

    def __enter__(self) -> Self:
        self.note_line()
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._has_ended.set()
        self._thread.join()

    def _beat(self) -> None:
        while not self._has_ended.wait(LOOKS_EVERY):
            try:
                self.look()
            except (OSError, FileError):  # the main thread's next line fails too, and reports it
                return


def tell_progress(what: str, say: Callable[[str], None], *, clock: Clock = time.monotonic) -> Heartbeat:
    began = clock()
    return Heartbeat(lambda: f"{what}: {clock() - began:.0f} s so far", say, clock=clock)


def describe_evaluation(evaluation: Evaluation) -> str:
    tries = "" if evaluation.rollouts == evaluation.tasks else f" x {evaluation.rollouts / evaluation.tasks:g} rollouts"
    where = describe_task_set(evaluation.name, evaluation.split)
    more = "" if evaluation.score is None else f", score {evaluation.score:.3f}"
    if evaluation.shown_pass is not None and evaluation.name != evaluation.split:
        more += f", pass@{evaluation.shown_k} {format_plain_percent(evaluation.shown_pass.success)}"
    return f"success {format_success(evaluation)} over {evaluation.tasks} tasks{tries} of {where}{more}"


def format_success(line: Evaluation | TasksSummary | PassAt) -> str:
    low, high = line.interval
    return f"{format_plain_percent(line.success)} [{100 * low:.1f}, {100 * high:.1f}]"
