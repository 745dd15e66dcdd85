"""Which virtual peers run which tasks: pure, with integers only, the same on every peer."""
