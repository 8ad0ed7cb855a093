"""What every store promises, each with a check, in groups."""
