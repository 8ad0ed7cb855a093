"""What a person sees of a run in a terminal, and how the person answers."""
