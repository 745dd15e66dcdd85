"""The bytes clients speak, pure: jute records, ZooKeeper requests and replies, four-letter words."""
