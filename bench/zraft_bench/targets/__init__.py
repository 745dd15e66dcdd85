"""Connections to the systems that are measured, all alike for a load generator."""
