"""Bad input on purpose: mutated client frames, peer datagrams and segment files. `python -m tests.fuzz`."""
