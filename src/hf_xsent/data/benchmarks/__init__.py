"""Read the test sets of the field, one file a benchmark."""
