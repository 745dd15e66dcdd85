"""Consensus, pure: one `Raft` object per group; no clock, socket, disk, thread or log inside."""
