"""Masterless coordination: peers replay one totally ordered log into immutable replicas."""
