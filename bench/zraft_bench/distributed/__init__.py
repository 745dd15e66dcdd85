"""A benchmark on many machines: one head, servers and clients, which talk through a board."""
