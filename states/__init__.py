"""
What is decided: seven states, a handler module for each, the rules they share, and the table of all moves.
"""

# Everything here is pure. Imports come from a short list that a test holds: no clock, no randomness, no
# I/O.
