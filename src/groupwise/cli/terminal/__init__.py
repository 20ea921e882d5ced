"""What commands print with: consoles that escape, streams that are safe, a display of a run while it trains."""
