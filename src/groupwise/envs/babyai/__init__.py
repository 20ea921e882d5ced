"""BabyAI's levels in words."""
