"""Losses over tensors, independent of models, files and trainers; each file has one loss or two related losses."""
