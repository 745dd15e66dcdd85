"""What runs the tasks of a group's virtual peers: channels between workers, executors, checkpoints, coordination."""
