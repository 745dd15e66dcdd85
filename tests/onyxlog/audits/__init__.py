"""Tests of the audits: tables, source, and the sessions that they run in."""
