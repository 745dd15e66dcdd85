"""Audits: logs, snapshots, deliveries and histories as tables of Spark, and what must hold of them."""
