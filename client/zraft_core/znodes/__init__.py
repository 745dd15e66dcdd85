"""Values of znodes: commands, rights, events and stats. Pure."""
