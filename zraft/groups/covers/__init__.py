"""Shared heartbeats: one datagram to a server speaks for all groups that are led here."""
