"""Games of other packages: GEM and textarena."""
