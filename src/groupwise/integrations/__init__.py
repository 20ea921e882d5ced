"""The same recipes inside other people's trainers, and readers of the rollouts they record."""
