"""Split sentences into words, and read links between words."""
