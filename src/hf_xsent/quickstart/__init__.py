"""Try everything on one machine, with built-in data."""
