"""Snapshots of groups: when they are due, and how they are written, sent and received."""
