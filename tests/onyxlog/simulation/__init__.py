"""Test tools for programs that play a log: in-memory counterparts of what the runtime stands on."""
