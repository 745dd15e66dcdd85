"""Paths of the znodes that have the ACLs of topics and of consumers. Their data mean nothing.

The ACL of topic NAME is that of /zookeeper/topics/NAME. Without this znode the ACL of /zookeeper/topics is the default.
Names of consumers have /zookeeper/consumers in the same way.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

_PLAIN: Final = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


class Guarded(Enum):
    """Kinds of things that have ACLs beside znodes. The value is the path of the default; the others are below it."""

    TOPICS = "/zookeeper/topics"
    CONSUMERS = "/zookeeper/consumers"


DIRECTORIES: Final = frozenset(kind.value for kind in Guarded)


def topic_path(name: str) -> str:
    """Return the znode of a topic's ACL."""
    return f"{Guarded.TOPICS.value}/{name}"


def consumer_path(name: bytes) -> str:
    """Return the znode of a consumer's ACL. What a znode's name may not hold is written as %XX, and so are dots."""
    return f"{Guarded.CONSUMERS.value}/{_written(name)}"


def _written(name: bytes) -> str:
    return "".join([chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in name])


def consumer_of(written: str) -> bytes | None:
    """Return the consumer whose ACL the znode of this name has; None if it is no name of one."""
    parts = written.split("%")
    try:
        found = parts[0].encode("ascii")
        for part in parts[1:]:
            found += bytes.fromhex(part[:2]) + part[2:].encode("ascii")
    except ValueError:
        return None
    return found if _written(found) == written and found else None
