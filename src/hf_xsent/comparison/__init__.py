"""Compare methods: train them from one encoder with one budget, over seeds and poolings, measure and report them."""
