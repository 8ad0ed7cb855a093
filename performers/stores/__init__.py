"""Stores keep the journal of a session. They take bytes and know nothing of their meaning."""
