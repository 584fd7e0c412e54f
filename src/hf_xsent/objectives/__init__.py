"""Losses over tensors, one file per objective of the papers, independent of models, files and trainers."""
