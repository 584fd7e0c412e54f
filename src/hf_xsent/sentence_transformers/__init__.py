"""Use objectives and evaluation tasks of this package in sentence-transformers."""
