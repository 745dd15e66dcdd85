"""What servers say to each other beside Raft. Values only; the codec of the wire is `zraft.transport.codec`."""

from __future__ import annotations

from attrs import frozen

from zraft.ids import GroupId, Instance, ServerId
from zraft.raft.messages import Message as RaftMessage


@frozen
class Hello:
    """Bootstrap and identity (D-1): who I am, and what I know of a cluster.

    `cluster` is the cluster id once the roster entry is in this server's log, else None. `roster` is
    the durable list of (server, instance) this server has agreed to bootstrap with, else None.
    """

    cluster: bytes | None
    roster: tuple[tuple[ServerId, Instance], ...] | None
    wants_reply: bool


@frozen
class OriginBatch:
    """One numbered batch of an origin's client writes, for the leader to append (D-2).

    `blob` is the packed batch exactly as it will stand in the log (see `zraft.tree.txn`); its bytes never
    change once numbered. (boot, seq, count) repeat what the blob says, so that the leader need not unpack it.
    """

    group: GroupId
    boot: int
    seq: int
    count: int
    blob: bytes


@frozen
class TouchReport:
    """Sessions heard from since the last acknowledged report, with their ages in ms at `number`'s sending (D-11)."""

    boot: int
    number: int
    ages: tuple[tuple[int, int], ...]


@frozen
class TouchAck:
    """The leader of `term` has taken report `number`; `refused` lists sessions whose end is already in its log."""

    term: int
    boot: int
    number: int
    refused: tuple[int, ...]


ServerMessage = Hello | OriginBatch | TouchReport | TouchAck
PeerMessage = RaftMessage | ServerMessage


@frozen
class Sender:
    """Whose datagram it was, as authenticated: `boot` is that server's boot number (fsynced before its first datagram)."""

    server: ServerId
    instance: Instance
    boot: int
