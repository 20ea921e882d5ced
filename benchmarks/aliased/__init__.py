"""Where HGPO's depth pays, measured against true advantages on worlds that hide 0 to 3 bits."""
