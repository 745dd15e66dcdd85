"""Measurement of how long it takes until another server leads when a leader is lost."""
