"""What commands print with: consoles that escape, streams that are safe, a panel of a run while it trains."""
