"""Interface between connections and the partitions on this server: types only.

No I/O and no waiting: a request is taken in a turn, and its answers are calls in this turn or a later one, until the
connection is dropped. `id` is the connection's own number for a request. Nothing is kept per message of a producer but
what the partition's leader keeps of it anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

from attrs import field, frozen

from zraft_core.claims.answers import ClaimAnswer, ClaimsView
from zraft_core.claims.commands import ClaimCommand
from zraft_core.ids import GroupId, ServerId
from zraft_core.topics.messages import Reply, StartRequest
from zraft_core.topics.stamps import Stamp

RefusalKind = Literal["not_leader", "no_group", "busy", "gone", "timeout", "too_large", "failed"]
"""`not_leader`: ask `TopicRefusal.leader`, or look again if that is None. `no_group`: no replica of it is here; look
who has it. `busy`: too much is under way, the same may be asked again soon. `gone`: retention removed that offset, `first`
is where the log begins now. `timeout`: this server leads the group no longer, and cannot tell what became of the request;
ask again. `too_large`: it will never be taken. `failed`: the deliveries on this server's disk are damaged; another replica
has them."""


@frozen
class Fetched:
    """Deliveries of `group` from the offset on that was asked for; none if nothing came in time.

    `deliveries` are (offset, stamp, message as `encode_message` packs it). `first` is the offset at which the log begins,
    `next` the one to ask for next, `end` that after the last delivery. Whatever is delivered at `next` or later has a stamp
    above `frontier` (docs/explanation/topics.md, "Merged order").
    """

    group: GroupId
    deliveries: Sequence[tuple[int, Stamp, bytes]] = field(repr=lambda found: f"<{len(found)}>")
    first: int
    next: int
    end: int
    frontier: Stamp


@frozen
class Offset:
    """Offset in a partition that was asked for: a consumer's, None if it is not known there, or that of a time."""

    group: GroupId
    offset: int | None


@frozen
class Consumers:
    """Consumers of a partition; `end` is the offset behind its last record.

    Each of `found` is (name, the offset that it continues with, owners): of a group that shares the partition by claims
    the owners of these, None of one that stores its offset itself.
    """

    group: GroupId
    found: tuple[tuple[bytes, int, tuple[str, ...] | None], ...]
    end: int


@frozen
class TopicRefusal:
    """A request that was not carried out, or of which this server does not know. `detail` is for people."""

    kind: RefusalKind
    group: GroupId
    leader: ServerId | None = None
    detail: str = ""
    first: int | None = None


class TopicClient(Protocol):
    """A connection. It is called within the server's turn, and must not call back into the service."""

    def on_reply(self, id: int, reply: Reply) -> None:
        """Take a partition's answer to a producer.

        There are several per message, as it is accepted, delivered, delivered everywhere.
        """

    def on_fetched(self, id: int, fetched: Fetched) -> None:
        """Take the deliveries of a fetch."""

    def on_claim(self, id: int, answer: ClaimAnswer | ClaimsView) -> None:
        """Take the answer to a claim's command, or the claims that were asked for."""

    def on_offset(self, id: int, offset: Offset) -> None:
        """Take the offset that `offset_of` or `offset_at` found, or that `seek` has stored."""

    def on_consumers(self, id: int, consumers: Consumers) -> None:
        """Take who consumes a partition."""

    def on_refused(self, id: int, refusal: TopicRefusal) -> None:
        """Take a refusal of a request."""


class TopicService(Protocol):
    """The partitions of this server, as connections see them. `driver.topics` is one as soon as the cluster has topics."""

    def produce(self, client: TopicClient, id: int, group: GroupId, requests: Sequence[StartRequest]) -> None:
        """Multicast messages of a producer; each is to be sent again until it is decided. The caller checked whose it is.

        Answered by `on_reply`, to the connection that asked for this producer's messages last; by `on_refused` where nothing
        was taken.
        """

    def fetch(
        self, client: TopicClient, id: int, group: GroupId, offset: int, bytes_max: int, wait_ms: int
    ) -> None:
        """Read deliveries from `offset` on, of any replica; if there is none yet, wait so long for the first (ms).

        At least one is given if there is any, more as far as `bytes_max` goes. Answered once, by `on_fetched` or
        `on_refused`.
        """

    def need(self, group: GroupId, time: int) -> None:
        """Ask an idle partition to pass `time` - 1, for a merged consumer.

        Not answered; ask again while it waits.
        """

    def claim(self, client: TopicClient, id: int, group: GroupId, command: ClaimCommand) -> None:
        """Carry out a consumer's command, at the leader. Answered by `on_claim` once applied, or by `on_refused`."""

    def claims_view(self, client: TopicClient, id: int, group: GroupId, name: str) -> None:
        """Show a group of consumers, at the leader and not from a stale one. Answered by `on_claim` or `on_refused`."""

    def seek(self, client: TopicClient, id: int, group: GroupId, consumer: bytes, offset: int | None) -> None:
        """Store how far a consumer has consumed, None forgets it; at the leader. Answered by `on_offset` or `on_refused`.

        Where the partition knows too many consumers, `on_offset` says None.
        """

    def offset_of(self, client: TopicClient, id: int, group: GroupId, consumer: bytes) -> None:
        """Read it, at the leader and not from a stale one. Answered by `on_offset` or `on_refused`."""

    def offset_at(self, client: TopicClient, id: int, group: GroupId, time_ms: int) -> None:
        """Find the first record delivered at a time (ms since 1970) or later, at the leader and not from a stale one.

        Answered by `on_offset`, with the end if there is none, or by `on_refused`.
        """

    def consumers(self, client: TopicClient, id: int, group: GroupId) -> None:
        """Tell who consumes a partition, at the leader and not from a stale one.

        Answered by `on_consumers` or `on_refused`.
        """

    def drop(self, client: TopicClient) -> None:
        """Drop a connection that is gone: nothing of it is answered any more. What was taken goes on."""
