"""Measure encoders on the benchmarks of the papers."""
