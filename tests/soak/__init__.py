"""Hours of mixed load under faults, in pieces: `python -m tests.soak --help`."""
