"""Requests of operators to a running cluster: their values, their bytes, and the client that carries them."""
