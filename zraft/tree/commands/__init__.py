"""Commands that are made of the tree's own: several in one step, exactly once, logs, wills, topics."""
