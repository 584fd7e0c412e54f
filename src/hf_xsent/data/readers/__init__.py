"""Read sentence pairs from files and data sets of any supported format."""
