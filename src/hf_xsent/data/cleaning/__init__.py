"""Clean sentence pairs, and report what was removed."""
