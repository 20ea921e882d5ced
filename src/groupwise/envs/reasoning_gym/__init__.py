"""The families of reasoning-gym."""
