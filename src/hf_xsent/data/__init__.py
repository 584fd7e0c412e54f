"""From files to batches: languages, readers, cleaning, mixing, benchmarks. Import from the files themselves."""
