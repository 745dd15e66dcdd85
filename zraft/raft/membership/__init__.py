"""Membership of a group: the value, how it may change, its majorities, and who has just left."""
