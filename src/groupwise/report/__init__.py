"""What was recorded, explained: audit, explain, the HTML report, comparison of runs."""
