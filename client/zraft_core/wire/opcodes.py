"""The numbers of ZooKeeper's operations, and which of them zraft answers."""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class Opcode(IntEnum):
    """All operation types of ZooKeeper 3.9's protocol, client-sent or internal."""

    ERROR = -1
    NOTIFICATION = 0
    CREATE = 1
    DELETE = 2
    EXISTS = 3
    GET_DATA = 4
    SET_DATA = 5
    GET_ACL = 6
    SET_ACL = 7
    GET_CHILDREN = 8
    SYNC = 9
    PING = 11
    GET_CHILDREN2 = 12
    CHECK = 13
    MULTI = 14
    CREATE2 = 15
    RECONFIG = 16
    CHECK_WATCHES = 17
    REMOVE_WATCHES = 18
    CREATE_CONTAINER = 19
    DELETE_CONTAINER = 20
    CREATE_TTL = 21
    MULTI_READ = 22
    AUTH = 100
    SET_WATCHES = 101
    SASL = 102
    GET_EPHEMERALS = 103
    GET_ALL_CHILDREN_NUMBER = 104
    SET_WATCHES2 = 105
    ADD_WATCH = 106
    WHO_AM_I = 107
    CREATE_SESSION = -10
    CLOSE_SESSION = -11


WRITES: Final = frozenset(
    {
        Opcode.CREATE,
        Opcode.CREATE2,
        Opcode.CREATE_CONTAINER,
        Opcode.CREATE_TTL,
        Opcode.DELETE,
        Opcode.DELETE_CONTAINER,
        Opcode.SET_DATA,
        Opcode.SET_ACL,
        Opcode.MULTI,
        Opcode.CLOSE_SESSION,
    }
)
"""Requests that become a command of the log; `requests.decode_write` decodes them."""

READS: Final = frozenset({Opcode.EXISTS, Opcode.GET_DATA, Opcode.GET_CHILDREN, Opcode.GET_CHILDREN2})
"""The common requests answered from applied state; `requests.decode_read` decodes them."""

SUPPORTED: Final = frozenset(
    {
        *WRITES,
        *READS,
        Opcode.GET_ACL,
        Opcode.SYNC,
        Opcode.PING,
        Opcode.RECONFIG,
        Opcode.CHECK_WATCHES,
        Opcode.REMOVE_WATCHES,
        Opcode.MULTI_READ,
        Opcode.AUTH,
        Opcode.SET_WATCHES,
        Opcode.SASL,
        Opcode.GET_EPHEMERALS,
        Opcode.GET_ALL_CHILDREN_NUMBER,
        Opcode.SET_WATCHES2,
        Opcode.ADD_WATCH,
        Opcode.WHO_AM_I,
    }
)
"""Everything else is answered with UNIMPLEMENTED, and then the connection is closed, as ZooKeeper does."""

XID_NOTIFICATION: Final = -1
XID_PING: Final = -2
XID_AUTH: Final = -4
XID_SET_WATCHES: Final = -8
