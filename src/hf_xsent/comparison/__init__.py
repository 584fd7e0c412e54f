"""Methods from one start with one budget, over seeds and poolings: trained, measured and reported side by side."""
