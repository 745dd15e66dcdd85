"""Tests of zraft_core.records."""
