"""A page to look at sessions with and to steer them; the HTTP server has it at its root."""
