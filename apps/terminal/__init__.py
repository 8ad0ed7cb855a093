"""Show a run in a terminal, and read a person's answers."""
