"""The attempts of an update: asked for by the plan, played, scored, admitted, measured, and joined by past ones."""
