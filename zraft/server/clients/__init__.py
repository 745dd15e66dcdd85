"""Connections of clients: what they asked, what they wait for, and what they are told. Pure."""
