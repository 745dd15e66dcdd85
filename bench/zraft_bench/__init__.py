"""Measures a zraft cluster: what it does under load, on one machine or on many."""
