"""Read public test sets, one file per benchmark."""
