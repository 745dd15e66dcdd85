"""Parts that are special about a topic's group: its replicated state, its leader, its clients' requests."""
