"""Jobs: workflows of functions over segments, windows and triggers, and what makes every segment count."""
