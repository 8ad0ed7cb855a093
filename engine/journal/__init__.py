"""The journal, pure: its entries, their bytes, and the fold that rebuilds a session."""
