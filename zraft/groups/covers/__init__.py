"""Shared heartbeats: one datagram from server to server speaks for all groups that the sender leads."""
