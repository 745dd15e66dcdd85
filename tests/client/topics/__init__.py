"""Tests of the client's topics, over a cluster in the test's own loop."""
