"""Clients and programs that were written for ZooKeeper, run against zraft (marker `compat`)."""
