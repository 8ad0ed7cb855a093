"""One suite for every way to host sessions over several processes, and a kill test with its figures."""
