"""Masterless coordination: peers that play one totally ordered log into immutable replicas."""
