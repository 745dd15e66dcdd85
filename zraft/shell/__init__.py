"""ZooKeeper's command-line client, `zraft shell`.

The meaning of commands is pure; sockets and terminals are at the edge.
"""
