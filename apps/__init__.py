"""Programs around the library: the command line, the chat, and the scripted stand-in for a model."""
