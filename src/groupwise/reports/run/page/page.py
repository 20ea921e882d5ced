"""The page: everything about a run in one file that opens anywhere."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from importlib import resources
from pathlib import Path

from groupwise.core.errors import FileError
from groupwise.core.run_paths import JOURNAL
from groupwise.reports.run.page import sections
from groupwise.reports.run.page.details import has_details
from groupwise.reports.run.page.headline_and_verdict import (
    name_kind,
    write_events_section,
    write_families_section,
    write_headline,
    write_verdict_section,
)
from groupwise.reports.run.page.markup import Html, join, tag
from groupwise.reports.run.page.rescued_groups import write_rescued_section
from groupwise.reports.run.run_folder import RunFolder
from groupwise.reports.run.verdict import find_verdict

# Nothing is fetched and nothing runs, whatever was recorded: the browser holds the page to it.
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
PACKAGE = "groupwise.reports.run.page"
NAMES = {
    "verdict": "Verdict",
    "families": "Families",
    "events": "On the way",
    "learning": "Learning",
    "time": "Time",
    "groups": "Groups",
    "rescued": "Rescued groups",
    "attempts": "Attempts",
    "settings": "Settings",
}
"""What the sections are called in the list at the top."""


def render_page(folder: RunFolder, *, method: str, note: str = "") -> str:
    """The report of a run as HTML; the same folder gives the same bytes.

    Args:
        folder: the run.
        method: what its algorithm is called.
        note: what there is to add to that.
    """
    verdict = find_verdict(folder)
    last, first = sections.read_last_and_first(folder)
    by_name = {
        "verdict": write_verdict_section(folder, verdict),
        "families": write_families_section(verdict),
        "events": write_events_section(folder),
        "learning": sections.write_learning_section(folder, verdict),
        "time": sections.write_time_section(folder),
        "groups": sections.write_groups_section(folder, verdict, last),
        "rescued": write_rescued_section(folder, verdict, last),
        "attempts": sections.write_attempts_section(folder, first, last),
        "settings": sections.write_settings_section(folder),
    }
    links = [
        tag("a", NAMES[name], href=f"#{name}") for name, content in by_name.items() if content and name != "verdict"
    ]
    body = tag(
        "main",
        write_headline(folder, method, note),
        tag("nav", links, aria_label="Sections"),
        list(filter(None, by_name.values())),
        tag("footer", "Read from ", tag("code", JOURNAL), " by ", tag("b", "groupwise report"), "."),
    )
    env = name_kind(folder.setting("env"))
    styles = ("page.css", "details.css") if has_details([*first, *last]) else ("page.css",)
    return wrap_page(f"{method} on {env}" if env else method, folder.name, body, [(PACKAGE, name) for name in styles])


def write_page(path: Path, text: str) -> int:
    """Write a page beside its place and rename it: a reader sees the old one or the new one. Returns its bytes."""
    content = text.encode("utf-8", errors="replace")  # half a surrogate pair is no UTF-8
    target = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        target.write_bytes(content)
        os.replace(target, path)
    except OSError as error:
        raise FileError(f"{path}: cannot be written ({error.strerror}); choose another file with --out") from None
    finally:
        with suppress(OSError):  # where nothing could be written there is nothing to remove
            target.unlink()
    return len(content)


def wrap_page(title: str, name: str, body: Html, styles: Sequence[tuple[str, str]]) -> str:
    """A whole page: its head, with style sheets that are given by package and file, and its body."""
    style = "".join(resources.files(package).joinpath(file).read_text(encoding="utf-8") for package, file in styles)
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{title}: {name}"),
        tag("style", Html(style)),
    )
    return join(Html("<!doctype html>\n"), tag("html", head, tag("body", body), lang="en"), "\n")
