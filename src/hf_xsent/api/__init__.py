"""Call from Python what the commands do; the command line is a thin layer over these functions."""
