"""What a driver starts from, and what it asks of its shell: identity, settings, stored group, effects."""

from __future__ import annotations

from attrs import define, field, frozen

from zraft.ids import Instance, ServerId
from zraft.raft.log import Log
from zraft.raft.messages import HardState
from zraft.raft.settings import RaftSettings
from zraft.server.bootstrap import Roster
from zraft.server.clients import ClientSettings, Output
from zraft.server.origin import OriginSettings
from zraft.storage.records import Record
from zraft.transport.messages import PeerMessage
from zraft.tree.settings import Settings


@frozen
class Identity:
    """Who this process is: the directory's identity and this start's number and random id (D-1)."""

    server: ServerId
    instance: Instance
    boot: int
    boot_id: bytes
    cluster: bytes | None


@frozen
class DriverSettings:
    """Everything a server decides by; `tree` seeds the replicated settings when a cluster is founded (D-5)."""

    raft: RaftSettings = field(factory=RaftSettings)
    origin: OriginSettings = field(factory=OriginSettings)
    clients: ClientSettings = field(factory=ClientSettings)
    tree: Settings = field(factory=Settings)
    entry_bytes_max: int = 512 * 1024
    entries_in_flight_max: int = 1
    """Uncommitted entries of a leader at which it lets commands gather: fuller entries cost less per command."""
    log_memory_bytes_max: int = 32 * 1024 * 1024
    reap_interval_ms: int = 60_000
    """How often a leader looks for containers and znodes with a time to live that are due."""


@frozen
class Stored:
    """What the write-ahead log holds of the coordination group, in the form that a start needs."""

    hard_state: HardState
    roster: Roster | None
    log: Log


@define
class Effects:
    """What the shell does after a turn, in any order.

    `write` is one frame to make durable; `Driver.persisted` is called when it is, and no further frame comes
    before that. `wake_at` is when the next turn is due even if nothing arrives.
    """

    sends: list[tuple[ServerId, list[PeerMessage]]]
    write: list[Record] | None
    outputs: list[Output]
    wake_at: int
