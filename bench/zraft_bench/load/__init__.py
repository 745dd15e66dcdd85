"""The load: what is asked of a system, the processes that ask, and how long answers took."""
