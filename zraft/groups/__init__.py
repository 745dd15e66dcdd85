"""Many Raft groups in one server: one write, one datagram and one heartbeat for all of them (docs/GROUPS.md). Pure."""
