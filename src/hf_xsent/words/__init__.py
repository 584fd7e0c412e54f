"""Link the words of sentence pairs with word aligners, for single pairs or for a file."""
