"""Requests of operators to a server, and the numbers that they see."""
