"""Sessions: many runs over one history, who owns them, and what people say to them."""
