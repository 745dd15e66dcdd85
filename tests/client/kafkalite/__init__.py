"""Tests of Kafka Lite's calls."""
