"""Export, describe, trim and publish trained models."""
