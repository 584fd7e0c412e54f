"""Sample pairs from several languages and collate them into batches."""
