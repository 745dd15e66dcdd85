"""The commands about topics and their consumers."""
