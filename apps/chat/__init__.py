"""The `turnwheel chat` command: a conversation in a terminal or through a pipe."""
