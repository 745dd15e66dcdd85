"""Benchmark of a zraft cluster under load, on one machine or on many."""
