"""Gossip in a peer process: the datagrams, their seal, and the source of entries on top of the log."""
