"""The nouns: records, the step table, segments, credit, the token table, samples, seeds."""
