"""Bad input on purpose: mutated client frames, peer datagrams and segment files. `python -m zraft.testing.fuzz`."""
