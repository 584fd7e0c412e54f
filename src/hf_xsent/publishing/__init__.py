"""From a checkpoint to something others use."""
