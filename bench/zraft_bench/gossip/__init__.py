"""The thesis' tables of gossip beside ours, in simulation."""
