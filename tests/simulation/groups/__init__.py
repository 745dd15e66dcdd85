"""Hundreds of small Raft groups on simulated servers, and what they were promised (docs/explanation/groups.md)."""
