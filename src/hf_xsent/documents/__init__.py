"""From two documents to bitext: sentences, spans, alignment, filter."""
