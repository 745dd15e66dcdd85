"""The immutable replica that every peer computes from the log, and the meaning of each kind of entry."""
