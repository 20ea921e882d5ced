"""Playing a fixed panel with a policy's weights, and what came of it: shares with intervals, verdicts."""
