"""Settings: how a dataclass declares them, and how recipes and flags fill it. Nothing here loads torch."""
