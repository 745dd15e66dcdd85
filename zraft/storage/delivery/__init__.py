"""Delivery segments: the files that consumers of a partition read, one directory per group (D-13)."""
