"""The scripted stand-in: a model server on loopback that answers without a key."""
