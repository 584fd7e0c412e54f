"""Losses over tensors, independent of models, files and trainers; one file per objective or two related ones."""
