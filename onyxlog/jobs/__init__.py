"""Jobs: workflows of functions over segments, windows and triggers, and the protocols by which every segment counts."""
