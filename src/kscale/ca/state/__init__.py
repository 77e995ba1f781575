"""State that one loop passes to the next, and the records in it."""
