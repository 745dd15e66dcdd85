"""Servers with partitions under faults: the shipped hosts, partitions, log, snapshots and delivery segments."""
