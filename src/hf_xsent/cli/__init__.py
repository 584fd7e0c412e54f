"""The command line ``hf-xsent``; nothing below imports it."""
