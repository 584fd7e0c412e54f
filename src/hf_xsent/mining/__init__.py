"""Mine translations from two monolingual sets of sentences by their embeddings."""
