"""Fine-tuning of encoders on tasks over pairs of texts, and transfer to other languages."""
