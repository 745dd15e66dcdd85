"""Simulated consumers on simulated partitions: many seeds, checkers, planted bugs (docs/explanation/claims.md)."""
