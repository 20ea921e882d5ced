"""Which credit is near the truth, and when: recipes held against true advantages over many circumstances."""
