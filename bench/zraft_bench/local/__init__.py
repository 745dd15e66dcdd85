"""Servers and load on one machine."""
