"""Fast tensor operations, each tested against a plain computation."""
