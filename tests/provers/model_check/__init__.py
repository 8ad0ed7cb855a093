"""What searches all of a small world, and what is looked at in each of its places."""
