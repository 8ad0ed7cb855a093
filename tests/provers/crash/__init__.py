"""Sessions in processes that are killed: how they live, where they end, and what is held against them."""
