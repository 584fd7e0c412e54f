"""Parallel sentences out of two monolingual sets of vectors."""
