"""Connections that speak ZooKeeper's protocol."""
