"""Observations of `zraft doctor` about a cluster and a configuration file: values, from which findings follow. Pure.

None, or an empty mapping, stands for what could not be seen. Nothing is concluded from it.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field, frozen


@frozen(kw_only=True)
class Disk:
    """The place of a data directory: bytes that are free and in all, and the kind of its file system, such as ext4."""

    free: int
    size: int
    kind: str = ""


@frozen(kw_only=True)
class ServerSight:
    """One server, as far as it told of itself.

    Attributes:
        name: its address, as findings name it.
        silent: why it does not answer; empty if it does.
        mode: leader, follower, standalone or observer; None if it answers and does not serve.
        version: its release.
        numbers: by name, what `mntr` tells.
        knobs: by name, the settings in force, from its admin HTTP server.
        loopback: whether only this machine reaches it.
        plain: whether it takes plain text.
        tls: whether it speaks TLS.
        certificate_ends_s: when its certificate ends, in seconds since 1970.
        clock_ahead_s: how far its clock is before that of this machine, to a second.
        disk: of its data directory.
        log_bytes: the size of its log's files.
    """

    name: str
    silent: str = ""
    mode: str | None = None
    version: str = ""
    numbers: Mapping[str, str] = field(factory=dict)
    knobs: Mapping[str, str] = field(factory=dict)
    loopback: bool = False
    plain: bool | None = None
    tls: bool | None = None
    certificate_ends_s: float | None = None
    clock_ahead_s: float | None = None
    disk: Disk | None = None
    log_bytes: int | None = None

    def number(self, name: str) -> float | None:
        """Return a number of `mntr`; None if the server did not tell it."""
        return number_in(self.numbers, name)

    @property
    def serves(self) -> bool:
        """Return whether it serves clients."""
        return not self.silent and self.mode is not None


@frozen(kw_only=True)
class FileSight:
    """A configuration file on this machine, and what it names.

    Attributes:
        name: the file.
        problem: why a server would not start with it; empty if it would.
        knobs: by name, the settings in force.
        loopback: whether the server's address is reached from this machine only.
        modes: by file or directory that it names and that should be secret, the permission bits.
        disk: of the data directory, or of the nearest directory above it that exists.
        certificate_ends_s: when the certificate ends, in seconds since 1970.
    """

    name: str
    problem: str = ""
    knobs: Mapping[str, str] = field(factory=dict)
    loopback: bool = False
    modes: Mapping[str, int] = field(factory=dict)
    disk: Disk | None = None
    certificate_ends_s: float | None = None


@frozen(kw_only=True)
class Sights:
    """All that was seen, at `now_s` (seconds since 1970).

    `open_root` and `open_topics` say whether everybody may do everything to the tree's root, and to topics without an ACL of
    their own. `unseen` has what could not be looked at, as whole sentences.
    """

    now_s: float
    servers: tuple[ServerSight, ...] = ()
    files: tuple[FileSight, ...] = ()
    open_root: bool | None = None
    open_topics: bool | None = None
    unseen: tuple[str, ...] = ()

    @property
    def loopback(self) -> bool:
        """Return whether only this machine reaches all the servers, as those of `zraft dev`."""
        return all(server.loopback for server in self.servers)


def number_in(values: Mapping[str, str], name: str) -> float | None:
    """Return the number of a name; None if there is none."""
    try:
        return float(values[name])
    except (KeyError, ValueError):
        return None
