"""Output of connections at the end of a turn."""

from __future__ import annotations

from zraft.server.clients.connection import ClientConnection

Output = tuple[ClientConnection, bytes, bool]
"""Bytes to write to one connection now, and whether to close it after them.

All outputs of one connection in a turn stand next to each other, and together they are its `Outgoing`, in order. There is
more than one only where large data are sent as they are in the tree, without a copy."""
