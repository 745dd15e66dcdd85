"""Chooses what runs tasks in a peer process: the job runner of each of its groups, or nothing."""

from __future__ import annotations

from pathlib import Path

from onyxlog.peer.task_runner import MakeRunner
from zraft.address import Address
from zraft.errors import ConfigError
from zraft.transport.keys import read_keys


def runner_factory(
    tenancy: str,
    *,
    address: Address,
    advertise: str | None,
    key_files: tuple[Path, ...],
    insecure: bool,
    hosts: str,
    groups: int,
    idle: bool,
) -> MakeRunner:
    """What makes the runner of each group. Each listens at `address`, or at a port of its own if that is 0.

    Raises:
        ConfigError: a key file cannot be used, or several groups are to share one port.
    """
    if idle:
        from onyxlog.testing.idle_runner import run_nothing

        return run_nothing
    if groups > 1 and address.port:
        raise ConfigError(
            f"--address: found port {address.port} for {groups} groups, expected port 0: each listens for itself"
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
        )
    )
