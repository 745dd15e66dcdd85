"""Parts of `onyxlog peer`: what runs tasks in a peer process, and where its entries come from."""

from __future__ import annotations

from pathlib import Path

from onyxlog.access import Access
from onyxlog.peer.entry_source import MakeSource, from_log
from onyxlog.peer.recording import Recordings
from onyxlog.peer.task_runner import MakeRunner
from zraft.transport.keys import read_keys
from zraft_core.address import Address
from zraft_core.errors import ConfigError


def runner_factory(
    tenancy: str,
    *,
    address: Address,
    advertise: Address | None,
    key_files: tuple[Path, ...],
    insecure: bool,
    hosts: str,
    access: Access,
    groups: int,
    idle: bool,
) -> MakeRunner:
    """Return what makes the runner of each group.

    Each listens at `address`, or at a port of its own if the port is 0.

    Raises:
        ConfigError: a key file cannot be used, or several groups would share one port.
    """
    if idle:
        from onyxlog.peer.idle_runner import run_nothing

        return run_nothing
    if groups > 1 and address.port:
        raise ConfigError(
            f"--address: found port {address.port} for {groups} groups, expected port 0: each listens for itself"
        )
    if groups > 1 and advertise is not None and advertise.port:
        raise ConfigError(
            f"--advertise: found {advertise} for {groups} groups, expected {advertise.host} without a port: each listens "
            f"at a port of its own"
        )
    from onyxlog.tasks.runner import RunnerSettings, runner_of

    return runner_of(
        RunnerSettings(
            tenancy=tenancy,
            address=address,
            advertise=advertise,
            keys=read_keys(key_files) if key_files else None,
            insecure_peers=insecure,
            hosts=hosts,
            access=access,
        )
    )


def source_factory(
    tenancy: str,
    *,
    gossip: str,
    address: Address,
    advertise: Address | None,
    key_files: tuple[Path, ...],
    insecure: bool,
    recordings: Recordings | None = None,
) -> MakeSource:
    """Return what brings each group its entries: the log's tail ("off"), or gossip in that mode.

    Each group has a UDP socket at `address`, with the same number as its port for segments, or any if the
    port is 0.

    Raises:
        ConfigError: a key file cannot be used, or groups would gossip beyond this machine without a key.
    """
    if gossip == "off":
        return from_log
    from onyxlog.gossip.settings import settings_for
    from onyxlog.gossip.spreading import Mode
    from onyxlog.peer.gossip.link import open_udp
    from onyxlog.peer.gossip.source import gossip_sources

    if not (key_files or insecure or address.is_loopback):
        raise ConfigError(
            f"--gossip: expected a --key, as {address} is reached from other machines; or say --insecure-peers"
        )
    if address.is_wildcard and advertise is None:
        raise ConfigError(
            f"--gossip: found --address {address}, expected --advertise HOST for others to send to"
        )
    keys = read_keys(key_files) if key_files else None
    return gossip_sources(
        open_udp(address, advertise), keys, tenancy, settings_for(Mode(gossip)), recordings=recordings
    )
