"""Programs that produce and consume, around the shipped `ProducerCore` and `Merger`, as connections of the servers."""

from __future__ import annotations

from tests.unit.server.partitions.cluster import Cluster
from zraft.topics.service import Fetched, Offset, TopicRefusal
from zraft_core.claims.answers import ClaimAnswer, ClaimsView
from zraft_core.ids import GroupId, ServerId
from zraft_core.topics.codec import decode_message
from zraft_core.topics.merger import MergePosition, Merger
from zraft_core.topics.message import Delivery, Message
from zraft_core.topics.messages import Reply
from zraft_core.topics.producer import Ended, ProducerCore
from zraft_core.topics.stamps import MessageId, Stamp


class Client:
    """A connection that remembers what it was answered."""

    def __init__(self) -> None:
        self.replies: list[tuple[int, Reply]] = []
        self.fetched: list[tuple[int, Fetched]] = []
        self.claims: list[tuple[int, ClaimAnswer | ClaimsView]] = []
        self.offsets: list[tuple[int, Offset]] = []
        self.refused: list[tuple[int, TopicRefusal]] = []

    def on_reply(self, id: int, reply: Reply) -> None:
        self.replies.append((id, reply))

    def on_fetched(self, id: int, fetched: Fetched) -> None:
        self.fetched.append((id, fetched))

    def on_claim(self, id: int, answer: ClaimAnswer | ClaimsView) -> None:
        self.claims.append((id, answer))

    def on_offset(self, id: int, offset: Offset) -> None:
        self.offsets.append((id, offset))

    def on_refused(self, id: int, refusal: TopicRefusal) -> None:
        self.refused.append((id, refusal))


class Producing(Client):
    """A producer's library: it sends what is undecided again and again, to whoever leads."""

    def __init__(self, cluster: Cluster, again_ms: int = 150) -> None:
        super().__init__()
        self.cluster = cluster
        self.producer = ProducerCore(cluster.coordinator.register(), cluster.coordinator.registry.table())
        self.ended: dict[MessageId, Ended] = {}
        self.messages: dict[MessageId, Message] = {}
        self.sent_at: dict[MessageId, int] = {}
        self.ended_at: dict[MessageId, int] = {}
        self.told: list[Reply] = []
        self._again_ms = again_ms

    def send(self, *destinations: GroupId, payload: bytes = b"") -> Message:
        message = self.producer.multicast(destinations, payload or b"m%d" % (self.producer.last + 1))
        self.messages[message.mid] = message
        self.sent_at[message.mid] = self.cluster.now_ms
        self._request(message.mid.seq)
        return message

    def _request(self, seq: int) -> None:
        for group, request in self.producer.requests(seq):
            leader = self.cluster.leader(group)
            if leader is not None:
                self.cluster.servers[leader].partitions.topics.produce(self, 0, group, request)

    def work(self) -> None:
        """Say again what is undecided, now and then."""
        for ended in self.producer.on_table(self.cluster.coordinator.registry.table()):
            self._end(ended)
        if self.cluster.now_ms % self._again_ms == 0:
            for seq in self.producer.undecided():
                self._request(seq)

    def on_reply(self, id: int, reply: Reply) -> None:
        self.told.append(reply)
        for ended in self.producer.on_reply(reply):
            self._end(ended)

    def _end(self, ended: Ended) -> None:
        self.ended[ended.mid] = ended
        self.ended_at[ended.mid] = self.cluster.now_ms


class Merging(Client):
    """A consumer of several partitions in one order, at whatever servers; it long-polls each of them."""

    def __init__(self, cluster: Cluster, *groups: GroupId, wait_ms: int = 200) -> None:
        super().__init__()
        self.cluster = cluster
        self.merger = Merger(MergePosition(dict.fromkeys(groups, 0)))
        self.out: list[tuple[Stamp, MessageId]] = []
        self._wait_ms = wait_ms
        self._asked: dict[GroupId, tuple[ServerId, int]] = {}
        self._number = 0
        self._of: dict[int, GroupId] = {}

    def work(self) -> None:
        cluster = self.cluster
        servers = [server for server in cluster.servers if server not in cluster.stopped]
        for group in self.merger.groups():
            asked = self._asked.get(group)
            if asked is not None and cluster.now_ms - asked[1] < 2 * self._wait_ms:
                continue
            server = cluster.rng.choice(servers)
            self._number += 1
            self._of[self._number] = group
            self._asked[group] = server, cluster.now_ms
            topics = cluster.servers[server].partitions.topics
            topics.fetch(self, self._number, group, self.merger.next_offset(group), 1 << 16, self._wait_ms)
        for group, time in self.merger.needed().items():
            if cluster.now_ms % 10 == 0:
                cluster.servers[cluster.rng.choice(servers)].partitions.topics.need(group, time)

    def on_fetched(self, id: int, fetched: Fetched) -> None:
        group = self._of.pop(id)
        self._asked.pop(group, None)
        if fetched.deliveries and fetched.deliveries[0][0] != self.merger.next_offset(group):
            return
        if not fetched.deliveries and fetched.next != self.merger.next_offset(group):
            return
        found = [
            Delivery(offset, stamp, decode_message(message), 0)
            for offset, stamp, message in fetched.deliveries
        ]
        self.merger.feed(group, found, fetched.frontier)
        self.out += [(one.stamp, one.message.mid) for one in self.merger.take(1_000)]

    def on_refused(self, id: int, refusal: TopicRefusal) -> None:
        self._asked.pop(self._of.pop(id), None)
