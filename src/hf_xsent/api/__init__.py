"""Provide Python functions for the commands."""
