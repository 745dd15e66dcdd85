"""The data directory: identity, lock, and one write-ahead log for all groups."""
