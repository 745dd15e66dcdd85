"""The load: the requests to a system, the processes that send them, and how long answers took."""
