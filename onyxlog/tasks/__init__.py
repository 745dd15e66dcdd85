"""Runtime of the tasks of a group's virtual peers: channels, executors, checkpoints, coordination."""
