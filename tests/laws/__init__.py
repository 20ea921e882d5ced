"""Properties that every recipe, or a named set of recipes, must hold on any table."""
