"""Losses as pure tensor work, one file per idea of the papers; nothing here knows a model, a file or a trainer."""
