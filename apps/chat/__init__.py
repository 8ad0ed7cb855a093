"""`turnwheel chat`: a conversation in a terminal."""
