"""Connections to the systems that are measured, with one interface for the load generator."""
