"""Word aligners, which link the words of sentence pairs, and the run that does so for a whole file."""
