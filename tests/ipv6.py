"""Whether this machine can run what is tested on IPv6's loopback address."""

from __future__ import annotations

import socket


def has_ipv6() -> bool:
    """Whether a socket can be bound to ::1."""
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True
