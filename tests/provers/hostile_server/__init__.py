"""A server that means ill, and the ways in which it does."""
