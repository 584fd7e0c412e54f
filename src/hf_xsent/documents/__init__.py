"""Align the sentences of two documents that are translations of each other."""
