"""Properties that every method, or a named set of methods, must hold on any table."""
