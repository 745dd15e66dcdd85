"""The coordination state machine, pure: znodes, sessions, origins and watches, all decided at apply."""
