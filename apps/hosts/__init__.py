"""What processes that share the sessions of one store have to know of each other."""
