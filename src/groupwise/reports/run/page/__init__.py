"""The report of a run as one page of HTML: no script, nothing fetched, everything escaped."""

from groupwise.reports.run.page.page import render, write_page

__all__ = ["render", "write_page"]
