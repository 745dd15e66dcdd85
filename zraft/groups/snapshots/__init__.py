"""Snapshots of groups: when they are due, how they are written, sent and taken in."""
