"""Fine-tuning of encoders on tasks over pairs of texts, and how well it carries over to other languages."""
