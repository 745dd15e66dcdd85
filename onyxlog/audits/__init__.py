"""Audits: logs, snapshots, deliveries and histories as tables of Spark, and the rules that must hold of them."""
