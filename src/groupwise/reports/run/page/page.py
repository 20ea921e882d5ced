"""The page: everything about a run in one file that opens anywhere."""

from __future__ import annotations

import os
from contextlib import suppress
from importlib import resources
from pathlib import Path

from groupwise.core.errors import FileError
from groupwise.reports.run.page import sections
from groupwise.reports.run.page.headline_and_verdict import families_section, headline, kind_of, verdict_section
from groupwise.reports.run.page.markup import Html, join, tag
from groupwise.reports.run.page.rescued_groups import rescued
from groupwise.reports.run.run_folder import RunFolder
from groupwise.reports.run.verdict import verdict

# Nothing is fetched and nothing runs, whatever was recorded: the browser holds the page to it.
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
NAMES = {
    "verdict": "Verdict",
    "families": "Families",
    "learning": "Learning",
    "time": "Time",
    "groups": "Groups",
    "rescued": "Rescued groups",
    "attempts": "Attempts",
    "settings": "Settings",
}
"""What the sections are called in the list at the top."""


def render(folder: RunFolder, *, method: str, note: str = "") -> str:
    """The report of a run as HTML; the same folder gives the same bytes.

    Args:
        folder: the run.
        method: what its algorithm is called.
        note: what there is to add to that.
    """
    found = verdict(folder)
    last, first = sections.last_and_first(folder)
    written = {
        "verdict": verdict_section(folder, found),
        "families": families_section(found),
        "learning": sections.learning(folder, found),
        "time": sections.time(folder),
        "groups": sections.groups(folder, found, last),
        "rescued": rescued(folder, found, last),
        "attempts": sections.attempts(folder, first, last),
        "settings": sections.settings(folder),
    }
    links = [
        tag("a", NAMES[name], href=f"#{name}") for name, content in written.items() if content and name != "verdict"
    ]
    body = tag(
        "main",
        headline(folder, method, note),
        tag("nav", links, aria_label="Sections"),
        list(filter(None, written.values())),
        tag("footer", "Read from ", tag("code", "journal.sqlite"), " by ", tag("b", "groupwise report"), "."),
    )
    env = kind_of(folder.setting("env"))
    return _document(f"{method} on {env}" if env else method, folder.name, body)


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


def _document(title: str, name: str, body: Html) -> str:
    style = resources.files("groupwise.reports.run.page").joinpath("page.css").read_text(encoding="utf-8")
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
