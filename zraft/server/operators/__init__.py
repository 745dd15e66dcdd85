"""What operators ask of a server, and what they see of it."""
