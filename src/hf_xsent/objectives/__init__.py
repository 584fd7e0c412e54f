"""Losses over tensors: one file per objective, or two related ones, independent of models, files and trainers."""
