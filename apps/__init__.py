"""The faces: the command line, and the scripted stand-in for a model."""
