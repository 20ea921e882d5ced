"""The report of a run as one page of HTML: no script, nothing fetched, everything escaped."""

from groupwise.reports.run.page.page import render_page, write_page

__all__ = ["render_page", "write_page"]
