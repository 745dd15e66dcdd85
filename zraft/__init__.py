"""zraft: a Raft-replicated coordination service that ZooKeeper clients can use."""

__version__ = "0.1.0"
