"""The server, in rooms: each imports only those below it (docs/explanation/architecture.md has the list)."""
