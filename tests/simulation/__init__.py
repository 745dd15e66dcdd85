"""Test tools that are part of the product: the simulator, its faults and its checkers."""
