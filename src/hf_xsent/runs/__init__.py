"""Keep output and work folders: what they were made from, who writes them, what is complete, how it resumes."""
