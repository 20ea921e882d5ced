"""A supervised start: the model learns to say what an expert, or somebody's recording, said."""
