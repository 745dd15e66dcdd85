"""Figures that three theses published, in one file, and one comparator for each thesis. Pure."""
