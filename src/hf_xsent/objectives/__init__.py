"""Losses over tensors, independent of models, files and trainers; each file has one objective, or two related objectives."""
