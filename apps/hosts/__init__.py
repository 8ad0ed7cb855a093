"""Hosts of sessions: one for many channels, and what processes on one store know of each other."""
