"""Watch notifications: the only frames a server sends without having been asked."""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache
from struct import Struct
from typing import Final

from zraft_core.wire.opcodes import XID_NOTIFICATION

_EVENT: Final = Struct(">iiqiiii")
_EVENT_BYTES: Final = 28

STATE_SYNC_CONNECTED: Final = 3
"""The only state a server ever sends; the others are made by client libraries."""


NO_ZXID: Final = -1
"""The zxid of an event that setWatches makes up for: which change it was is not known any more."""


class EventType(IntEnum):
    """Events of a znode, in ZooKeeper's numbers."""

    NODE_CREATED = 1
    NODE_DELETED = 2
    NODE_DATA_CHANGED = 3
    NODE_CHILDREN_CHANGED = 4


@lru_cache(maxsize=1)
def encode_watch_event(zxid: int, event_type: int, path: str) -> bytes:
    """Return one framed notification; `zxid` is that of the command that caused it, or `NO_ZXID`.

    Thousands may be told of one change: they are sent the same bytes.
    """
    raw = path.encode()
    size = len(raw)
    return (
        _EVENT.pack(_EVENT_BYTES + size, XID_NOTIFICATION, zxid, 0, event_type, STATE_SYNC_CONNECTED, size)
        + raw
    )
