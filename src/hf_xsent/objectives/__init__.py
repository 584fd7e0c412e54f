"""Losses over tensors, independent of models, files and trainers; a file has one objective or two related objectives."""
