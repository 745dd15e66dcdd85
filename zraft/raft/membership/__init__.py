"""Who belongs to a group: the value, how it may change, what a majority of it is, and who has just left."""
