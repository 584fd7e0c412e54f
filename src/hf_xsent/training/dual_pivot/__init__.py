"""Dual pivot: training over a frozen encoder, on features that are encoded once."""
