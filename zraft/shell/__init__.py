"""`zraft shell`: ZooKeeper's command-line client. What a command means is pure; sockets and terminals are at the edge."""
