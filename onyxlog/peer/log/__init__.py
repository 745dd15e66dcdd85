"""The log that peers play: what they need of it, and the ports that keep it in znodes of a service (docs/ONYXLOG.md)."""
