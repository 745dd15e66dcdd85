"""Atomic multicast between groups under an adversary: the shipped decisions, checked from outside, one seed a run."""
