"""Provide a Python function for each command; the command line is a thin layer over these functions."""
