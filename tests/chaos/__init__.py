"""Chaos on real processes: faults, clients that record what they saw, and a verdict.

See docs/explanation/testing.md, "Chaos".
"""
