"""The log that peers play: what they need of it, and the ports that keep it in znodes of a service.

Source: docs/explanation/onyxlog.md.
"""
