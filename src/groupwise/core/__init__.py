"""The nouns: records, the step table, credit, parts and slots, configuration, errors."""
