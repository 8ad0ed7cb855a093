"""Hosts of sessions: one for many channels, and the knowledge that processes on one store have of each other."""
