"""Topics and genuine atomic multicast between Raft groups: decisions only, no clock, socket, file or thread."""
