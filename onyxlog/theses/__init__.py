"""What three theses published, and how ours compares: one file of figures, and one comparator for each thesis. Pure."""
