"""The store of several machines: a schema of a PostgreSQL database."""
