"""What must hold of a run: the ledger of all its steps, and a book for each kind of promise."""
