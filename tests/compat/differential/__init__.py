"""The same random operations applied to ZooKeeper and to zraft, replies and watch events compared."""
