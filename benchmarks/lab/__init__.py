"""Which credit is near the truth, and when: methods held against true advantages over many circumstances."""
