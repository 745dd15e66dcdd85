"""Tests of traces for ShiViz."""
