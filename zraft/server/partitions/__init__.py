"""What is special about a topic's group: its replicated state, its leader, and what its clients ask of it."""
