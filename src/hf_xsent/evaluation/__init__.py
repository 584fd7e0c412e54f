"""The benchmarks of the papers, measured on any encoder through the lean path."""
