"""From hidden states to log-probabilities and entropies, without ever holding the logits of a batch."""
