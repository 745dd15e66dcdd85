"""Compares zraft with other systems."""
