"""The server, in rooms: each imports only those below it (docs/ARCHITECTURE.md has the list)."""
