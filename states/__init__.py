"""Decisions: seven states, a handler module for each, the rules they share, and the table of all moves."""

# Everything here is pure. Imports come from a short list that a test holds: no clock, no randomness, no
# I/O. That is what makes a replay show what happened and not something like it.
#
# Begin with `table`, which has every move with its reason, and `state`, which has the seven. A handler is a
# function of a state and a `Context` to the next state and a tuple of effects; it changes nothing by itself.
