"""Errors that users see, and ZooKeeper's numeric codes for those that cross its wire.

State machines answer with a `Code` because an error there is an ordinary result; everything at an
edge (configuration, disk, datagrams, command line) raises a `ZraftError`.
"""

from __future__ import annotations

from enum import IntEnum


class Code(IntEnum):
    """Result codes of ZooKeeper's protocol. Clients fail on unknown ones, so none may be invented."""

    OK = 0
    SYSTEM_ERROR = -1
    RUNTIME_INCONSISTENCY = -2
    DATA_INCONSISTENCY = -3
    CONNECTION_LOSS = -4
    MARSHALLING_ERROR = -5
    UNIMPLEMENTED = -6
    OPERATION_TIMEOUT = -7
    BAD_ARGUMENTS = -8
    UNKNOWN_SESSION = -12
    NEW_CONFIG_NO_QUORUM = -13
    RECONFIG_IN_PROGRESS = -14
    API_ERROR = -100
    NO_NODE = -101
    NO_AUTH = -102
    BAD_VERSION = -103
    NO_CHILDREN_FOR_EPHEMERALS = -108
    NODE_EXISTS = -110
    NOT_EMPTY = -111
    SESSION_EXPIRED = -112
    INVALID_CALLBACK = -113
    INVALID_ACL = -114
    AUTH_FAILED = -115
    SESSION_MOVED = -118
    NOT_READ_ONLY = -119
    EPHEMERAL_ON_LOCAL_SESSION = -120
    NO_WATCHER = -121
    REQUEST_TIMEOUT = -122
    RECONFIG_DISABLED = -123
    SESSION_CLOSED_REQUIRE_SASL_AUTH = -124
    QUOTA_EXCEEDED = -125
    THROTTLED_OP = -127


class ZraftError(Exception):
    """Root of all errors that zraft raises on purpose.

    `retriable` says whether trying the same call again can help, so that retry loops read an
    attribute instead of keeping lists of classes.
    """

    retriable = False


class ConfigError(ZraftError, ValueError):
    """A configuration value, argument or file is wrong; the message names the knob."""


class StorageError(ZraftError, OSError):
    """The data directory cannot be used as asked; the message names the file and what to do."""


class ProtocolError(ZraftError, ValueError):
    """Bytes from a peer or client do not follow the protocol; the message says what was found and expected."""


class MarshallingError(ProtocolError):
    """The body of a ZooKeeper request cannot be decoded; answered with `Code.MARSHALLING_ERROR`."""
