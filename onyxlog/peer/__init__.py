"""Runtime of peers: the log that they play, their groups, their tasks, and the messages between them."""
