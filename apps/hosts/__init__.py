"""Hosts of sessions: the knowledge that processes on one store have of each other."""
