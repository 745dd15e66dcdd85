"""What runs peers: the log they play, their groups, their tasks, and the messages between them."""
