"""Evaluate encoders: Tatoeba, BUCC, STS, and scores of word alignment, sentence alignment and question answering."""
