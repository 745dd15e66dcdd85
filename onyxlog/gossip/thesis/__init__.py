"""The thesis' own gossip as a model: its draws, its copies, exact probabilities, and the figures it published."""
