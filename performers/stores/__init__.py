"""Stores: where the journal of a session is kept. They take bytes and know nothing of what these mean."""
