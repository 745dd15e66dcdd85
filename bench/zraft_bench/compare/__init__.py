"""Comparison of zraft with other systems."""
