"""Training: arguments and recipes, the Trainer of transformers with our losses, and what watches it."""
