"""Several runs as one page of HTML: no script, nothing fetched, everything escaped."""

from groupwise.reports.runs.page.page import render_runs_page

__all__ = ["render_runs_page"]
