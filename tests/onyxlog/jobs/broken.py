"""A module of a user's that fails when it is imported."""

raise RuntimeError("no licence")
