"""Opening of a group's log in a service: over zraft's own protocol, or over any ZooKeeper's."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from onyxlog.access import NOBODY, Access
from onyxlog.peer.log.port import OpenPort
from zraft_core.address import Address
from zraft_core.errors import ConfigError

SESSION_TIMEOUT_S: Final = 10.0


class Service(StrEnum):
    """Services that can hold the log."""

    ZRAFT = "zraft"
    """Tail subscription, exactly-once appends, wills."""
    ZOOKEEPER = "zookeeper"
    """Any ZooKeeper: watches and plain creates. It is slower, and groups join only by the ring."""


def opener(
    service: Service,
    hosts: tuple[Address, ...],
    tenancy: str,
    *,
    session_timeout_s: float = SESSION_TIMEOUT_S,
    access: Access = NOBODY,
) -> OpenPort:
    """Return what opens a port with a session of its own, each time it is called.

    Raises:
        ConfigError: the tenancy cannot be a znode's name, what the service needs is not installed, or a
            file that `access` names cannot be used.
    """
    text = ",".join(map(str, hosts))
    if service is Service.ZRAFT:
        from onyxlog.peer.log.native import native_ports

        return native_ports(text, tenancy, session_timeout_s=session_timeout_s, access=access)
    try:
        from onyxlog.peer.log.zookeeper import zookeeper_ports
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "kazoo":
            raise
        raise ConfigError(
            "--service zookeeper: kazoo is not installed; pip install 'zraft[zookeeper]'"
        ) from error

    return zookeeper_ports(text, tenancy, session_timeout_s=session_timeout_s, access=access)
