"""Work on data directories without a running server: a cluster that ended is read, and a new one is founded."""
