"""Decision which virtual peers run which tasks. Pure, with integers only, and the same on every peer."""
