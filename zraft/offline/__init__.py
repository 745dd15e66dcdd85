"""Work on data directories without a running server: reads a cluster that ended, and creates a new one."""
