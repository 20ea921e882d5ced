"""An update on one GPU through vLLM and through our own engine, side by side, and what overlap gains there."""
