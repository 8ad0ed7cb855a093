"""The machine, the events of inputs, and what a takeover does with open work: pure."""
