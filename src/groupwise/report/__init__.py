"""Reports on recorded rollouts and runs: audit, explain, HTML pages, comparison of runs."""
